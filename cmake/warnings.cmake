# How all of our code is compiled: language, warnings, optimisation, sanitizers.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set_property(GLOBAL PROPERTY USE_FOLDERS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or Sanitize" FORCE)
endif()

# -O2 and not -O3: the hot loops are written with Highway or run in oneDNN, so -O3 would only make
# the rest larger and the build slower. Debug information multiplies the time to write and link.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g0 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
# Lines in the reports, short compile times, and DCHECKs stay on.
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -fno-omit-frame-pointer")

file(RELATIVE_PATH to_source ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/)
add_compile_options(
  -Wall -Wextra -Wconversion -Wshadow
  # A fused multiply-add rounds once where the source says twice: results would depend on the
  # compiler's mood. Kernels that want it ask for it by name.
  -ffp-contract=off
  # __FILE__ in messages is the path in the repository, wherever it is checked out (the second
  # form is what the compiler cache below makes of it).
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/= -fmacro-prefix-map=${to_source}=)
if(DEW_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Clang counts sign conversions to -Wconversion, GCC does not; one rule for both.
  add_compile_options(-Wno-sign-conversion)
endif()

# Libraries that a program was told to link but does not use cost start-up time.
add_link_options(-Wl,--as-needed)

if(DEW_SANITIZE)
  add_compile_options(-fsanitize=${DEW_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DEW_SANITIZE})
  add_compile_definitions(DEW_SANITIZED)  # tests that measure, or take long, ask for it
endif()

add_compile_definitions(DEW_VERSION="${PROJECT_VERSION}")

# Relative paths in the compiler cache's keys let a second checkout reuse the first one's objects;
# the sloppiness is what its manual asks for with precompiled headers.
find_program(DEW_CCACHE ccache)
if(DEW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${DEW_CCACHE})
endif()
