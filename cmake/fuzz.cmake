# tests/fuzz/x_fuzz.cc: one parser each, given any bytes. An ordinary build runs its corpus as the
# test fuzz_x. With DEW_FUZZ (clang only; tools/fuzz) it is a libFuzzer program that looks for more.
#
#   cmake --preset asan -B build/fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DDEW_FUZZ=ON
#   cmake --build build/fuzz --target fuzz && tools/fuzz build/fuzz 10
#
# Ten times as many inputs in the same time, without what the sanitizers see, for long runs:
#
#   cmake -B build/fuzz -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=clang++-16 -DDEW_FUZZ=ON

# The rooms with parsers: those whose branches the fuzzer watches.
set(DEW_FUZZED_ROOMS base ir ops nn sharding data checkpoint train hf)

function(dew_fuzz_targets)
  if(DEW_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "DEW_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++-16")
  endif()
  set(main ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus_main.cc)
  if(DEW_FUZZ)
    set(main ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzzer_main.cc)
    foreach(room IN LISTS DEW_FUZZED_ROOMS)
      target_compile_options(dew_${room} PRIVATE -fsanitize=fuzzer-no-link)
    endforeach()
    # Nothing to see in its comparisons, each of which would be recorded: half of a config's time.
    set_source_files_properties(${PROJECT_SOURCE_DIR}/dew/base/nearest.cc PROPERTIES
                                COMPILE_OPTIONS -fno-sanitize=fuzzer-no-link)
  endif()
  dew_room_targets(rooms hf train checkpoint data ops ir base)
  add_custom_target(fuzz)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM stem)
    string(REGEX REPLACE "_fuzz$" "" name ${stem})
    set(target fuzz_${name})
    add_executable(${target} ${source} ${main})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    target_link_libraries(${target} PRIVATE ${rooms} dew_deps::json)
    add_dependencies(fuzz ${target})
    set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
    if(DEW_FUZZ)
      target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      add_test(NAME ${target} COMMAND ${target} -runs=0 ${corpus})
    else()
      add_test(NAME ${target} COMMAND ${target} ${corpus})
    endif()
  endforeach()
endfunction()
