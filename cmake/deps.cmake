# Every third-party library, as a target dew_deps::<name>. Rooms name them in LIBS. The installed
# package uses this file too, then only for what linking libdew.a needs.
#
# Most are found by header and library: the config files of Debian's oneDNN ask for OpenCL, which
# we never call, and those of Highway and xxHash do not exist.

find_package(Threads REQUIRED)

function(dew_dep name)
  cmake_parse_arguments(ARG "" "HEADER" "LIBS;DEFINES;FOLDERS" ${ARGN})
  if(TARGET dew_deps::${name})
    return()
  endif()
  add_library(dew_deps::${name} INTERFACE IMPORTED GLOBAL)
  # An installed libdew.a is linked by programs that never include these headers.
  if(NOT DEW_LINK_ONLY)
    find_path(DEW_${name}_INCLUDE ${ARG_HEADER} PATH_SUFFIXES ${ARG_FOLDERS} REQUIRED)
    mark_as_advanced(DEW_${name}_INCLUDE)
    target_include_directories(dew_deps::${name} SYSTEM INTERFACE ${DEW_${name}_INCLUDE})
    target_compile_definitions(dew_deps::${name} INTERFACE ${ARG_DEFINES})
  endif()
  foreach(lib IN LISTS ARG_LIBS)
    find_library(DEW_${lib}_LIBRARY ${lib} REQUIRED)
    mark_as_advanced(DEW_${lib}_LIBRARY)
    target_link_libraries(dew_deps::${name} INTERFACE ${DEW_${lib}_LIBRARY})
  endforeach()
endfunction()

dew_dep(dnnl         HEADER oneapi/dnnl/dnnl.h LIBS dnnl)
dew_dep(hwy          HEADER hwy/highway.h LIBS hwy DEFINES HWY_SHARED_DEFINE)
dew_dep(fmt          HEADER fmt/format.h LIBS fmt)
dew_dep(xxhash       HEADER xxhash.h LIBS xxhash)
if(DEW_FUZZ)  # compiled with our code, so that the fuzzer sees its branches as well
  dew_dep(tomlplusplus HEADER toml++/toml.h DEFINES TOML_HEADER_ONLY=1)
else()
  dew_dep(tomlplusplus HEADER toml++/toml.h LIBS tomlplusplus
                       DEFINES TOML_HEADER_ONLY=0 TOML_SHARED_LIB=1)
endif()
dew_dep(pcre2        HEADER pcre2.h LIBS pcre2-8)
dew_dep(sentencepiece HEADER sentencepiece_processor.h LIBS sentencepiece)
dew_dep(utf8proc     HEADER utf8proc.h LIBS utf8proc)
dew_dep(zstd         HEADER zstd.h LIBS zstd)
dew_dep(zlib         HEADER zlib.h LIBS z)
dew_dep(mpi          HEADER mpi.h LIBS mpi FOLDERS mpi openmpi DEFINES OMPI_SKIP_MPICXX=1)
dew_dep(json         HEADER nlohmann/json.hpp)
dew_dep(cli11        HEADER CLI/CLI.hpp)

# oneDNN's OpenMP runtime, for omp_set_num_threads(1). It lies in the compiler's own folder, so the
# linker finds it and find_library does not.
target_link_libraries(dew_deps::dnnl INTERFACE gomp)

if(DEW_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(rapidcheck REQUIRED)
endif()
if(DEW_BUILD_BENCH)
  find_package(benchmark REQUIRED)
endif()
