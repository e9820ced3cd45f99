# A room is one folder under dew/: a static library dew_<room> of its sources and a test executable
# test_<room> of its *_test.cc files. Both are found by glob, so no test can be forgotten, and a
# folder without sources is skipped.

set_property(GLOBAL PROPERTY DEW_ROOMS "")   # the rooms in libdew.a
set_property(GLOBAL PROPERTY DEW_LIBS "")    # and the libraries that they use

# "runtime/cpu" -> "dew_runtime_cpu" if that room has sources, else nothing. Resolved after all rooms
# are declared, so that tests may use rooms further down. "all" is the whole library.
function(dew_room_targets out)
  set(targets "")
  foreach(room IN LISTS ARGN)
    if(room STREQUAL "all")
      list(APPEND targets dew)
    else()
      string(REPLACE "/" "_" room ${room})
      list(APPEND targets $<TARGET_NAME_IF_EXISTS:dew_${room}>)
    endif()
  endforeach()
  set(${out} ${targets} PARENT_SCOPE)
endfunction()

# dew_room(<folder> [RECURSE] [FILES prefix] [EXCLUDE files...] [OUTSIDE_LIBRARY] [OWN_HEADERS]
#          [DEPS rooms...] [TEST_DEPS rooms...] [LIBS third-party...])
# FILES names a room that is not a folder but the files dew/<prefix>*.cc. OWN_HEADERS: it does not
# use the precompiled headers of the other rooms.
function(dew_room folder)
  cmake_parse_arguments(ARG "RECURSE;OUTSIDE_LIBRARY;OWN_HEADERS" "FILES" "EXCLUDE;DEPS;TEST_DEPS;LIBS" ${ARGN})
  string(REPLACE "/" "_" room ${folder})
  set(glob GLOB)
  if(ARG_RECURSE)
    set(glob GLOB_RECURSE)
  endif()
  set(pattern dew/${folder}/*.cc)
  if(ARG_FILES)
    set(pattern dew/${ARG_FILES}*.cc)
  endif()
  file(${glob} sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${pattern})
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  foreach(file IN LISTS ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/dew/${folder}/${file})
  endforeach()

  dew_room_targets(deps ${ARG_DEPS})
  list(TRANSFORM ARG_LIBS PREPEND dew_deps::)
  if(sources)
    add_library(dew_${room} STATIC ${sources})
    target_include_directories(dew_${room} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(dew_${room} PUBLIC ${deps} Threads::Threads PRIVATE ${ARG_LIBS})
    if(NOT ARG_OWN_HEADERS)
      dew_compile_room_fast(dew_${room})
    endif()
    if(NOT ARG_OUTSIDE_LIBRARY)
      set_property(GLOBAL APPEND PROPERTY DEW_ROOMS dew_${room})
      set_property(GLOBAL APPEND PROPERTY DEW_LIBS ${ARG_LIBS})
    endif()
  endif()
  if(tests AND DEW_BUILD_TESTS)
    dew_room_targets(test_deps ${folder} ${ARG_TEST_DEPS} ${ARG_DEPS})
    dew_test(test_${room} SOURCES ${tests} LIBS ${test_deps} ${ARG_LIBS})
  endif()
endfunction()

# A GoogleTest executable, one ctest entry (starting a process a test case would take longer than
# most cases). Tests run from the repository root, so "dew/ir/testdata/x.txt" is a path;
# DEW_PROGRAM is the built program; results are left as XML for tools/run_tests to count.
function(dew_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} rapidcheck GTest::gmock GTest::gtest_main)
  dew_compile_test_fast(${name})
  set(timeout 600)
  set(more "")
  if(DEW_SANITIZE)  # see tests/effort.h
    set(timeout 2400)
    set(more ";RC_PARAMS=max_success=20")
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${timeout}
    ENVIRONMENT "DEW_PROGRAM=${PROJECT_BINARY_DIR}/dew;DEW_EXAMPLES=${PROJECT_BINARY_DIR}/examples;GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test-results/;TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/tsan.supp${more}")
endfunction()

# Half of compiling a file is reading the standard library, fmt and GoogleTest: one precompiled header
# for the rooms, one for tests. Tests get by with less optimisation too (what they test does not).
# CI's clang build does without, so no include can be missing.
set(DEW_COMMON_HEADERS <fmt/format.h> <algorithm> <array> <cmath> <cstdint> <functional> <map>
    <memory> <optional> <set> <span> <string> <string_view> <variant> <vector>)

# dew_precompile(<name> LIBS... HEADERS...): a target whose precompiled headers others reuse.
function(dew_precompile name)
  cmake_parse_arguments(ARG "" "" "LIBS;HEADERS;OPTIONS" ${ARGN})
  if(NOT TARGET ${name})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cc CONTENT "")
    add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cc)
    target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
    target_link_libraries(${name} PRIVATE ${ARG_LIBS})
    target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  endif()
endfunction()

function(dew_compile_room_fast name)
  if(DEW_FAST_BUILD AND NOT DEW_FUZZ)  # some rooms are watched by the fuzzer, so no header fits all
    dew_precompile(dew_room_pch LIBS dew_deps::fmt HEADERS ${DEW_COMMON_HEADERS})
    target_precompile_headers(${name} REUSE_FROM dew_room_pch)
  endif()
endfunction()

function(dew_compile_test_fast name)
  if(DEW_SANITIZE)  # instrumented and optimised, a test takes twice as long to compile
    target_compile_options(${name} PRIVATE -O0)
  endif()
  if(DEW_FAST_BUILD)
    set(less $<$<CONFIG:Release>:-O1>)
    dew_precompile(dew_test_pch OPTIONS ${less} LIBS dew_deps::fmt GTest::gmock
                   HEADERS <gmock/gmock.h> <gtest/gtest.h> <random> ${DEW_COMMON_HEADERS})
    target_compile_options(${name} PRIVATE ${less})
    target_precompile_headers(${name} REUSE_FROM dew_test_pch)
  endif()
endfunction()

# One static library of all rooms' objects: what is installed, and what programs link.
function(dew_library)
  get_property(rooms GLOBAL PROPERTY DEW_ROOMS)
  get_property(libs GLOBAL PROPERTY DEW_LIBS)
  list(REMOVE_DUPLICATES libs)
  list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
  if(NOT rooms)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/empty.cc CONTENT "")
    set(rooms ${PROJECT_BINARY_DIR}/empty.cc)
  endif()
  add_library(dew STATIC ${rooms})
  add_library(dew::dew ALIAS dew)
  set_target_properties(dew PROPERTIES LINKER_LANGUAGE CXX)
  target_compile_features(dew INTERFACE cxx_std_20)
  target_include_directories(dew INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(dew PUBLIC Threads::Threads PRIVATE ${libs})
endfunction()

# The target is not called dew because the library is.
function(dew_program)
  set(main ${PROJECT_SOURCE_DIR}/dew/cli/main.cc)
  if(EXISTS ${main})
    add_executable(dew_program ${main})
    set_target_properties(dew_program PROPERTIES
      OUTPUT_NAME dew RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    target_link_libraries(dew_program PRIVATE
      $<TARGET_NAME_IF_EXISTS:dew_cli> dew dew_deps::fmt dew_deps::cli11)
  endif()
endfunction()

# tests/<folder>/*.cc: what crosses rooms. One executable a folder, linking everything.
function(dew_cross_tests)
  file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true ${PROJECT_SOURCE_DIR}/tests/*)
  list(REMOVE_ITEM folders ${PROJECT_SOURCE_DIR}/tests/fuzz)  # cmake/fuzz.cmake
  foreach(folder IN LISTS folders)
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc)
    if(sources)
      cmake_path(GET folder FILENAME name)
      if(TARGET test_${name})
        set(name ${name}_program)  # tests/cli beside the tests of room cli
      endif()
      if(name STREQUAL "processes")  # they run the program as those of tests/cli do
        list(APPEND sources ${PROJECT_SOURCE_DIR}/tests/cli/program.cc)
      endif()
      dew_test(test_${name} SOURCES ${sources} LIBS $<TARGET_NAME_IF_EXISTS:dew_cli> dew dew_deps::fmt)
      set_tests_properties(test_${name} PROPERTIES COST 100)  # they take longest: begin with them
      if(TARGET dew_program)
        add_dependencies(test_${name} dew_program)  # some run it
      endif()
      if(folder MATCHES "/tests/cli$")  # one of them runs it
        add_dependencies(test_${name} example_scaling)
      endif()
    endif()
  endforeach()
endfunction()

# Examples see the library as a user does.
function(dew_examples)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.cc)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    add_executable(example_${name} ${source})
    if(NOT DEW_BUILD_TESTS)
      set_target_properties(example_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
    set_target_properties(example_${name} PROPERTIES
      OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    target_link_libraries(example_${name} PRIVATE dew::dew)
    # tests/cli/scaling_test.cc runs that one and reads what it prints.
    if(DEW_BUILD_TESTS AND NOT name STREQUAL "scaling")
      add_test(NAME example_${name} COMMAND example_${name}
               WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    endif()
  endforeach()
endfunction()

# bench/*.cc, one Google Benchmark program each. Not in the default build.
function(dew_benchmarks)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.cc)
  add_custom_target(bench)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    add_executable(bench_${name} EXCLUDE_FROM_ALL ${source})
    set_target_properties(bench_${name} PROPERTIES
      OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
    target_link_libraries(bench_${name} PRIVATE
      dew dew_deps::fmt dew_deps::hwy dew_deps::dnnl benchmark::benchmark_main)
    add_dependencies(bench bench_${name})
    # Where dew bench looks; only if they were built.
    install(PROGRAMS ${PROJECT_BINARY_DIR}/bench/${name} DESTINATION libexec/dew/bench OPTIONAL)
  endforeach()
endfunction()
