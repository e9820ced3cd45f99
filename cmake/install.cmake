# make install: the program, libdew.a, the public headers and the package for find_package(dew).

include(CMakePackageConfigHelpers)

if(TARGET dew_program)
  install(TARGETS dew_program DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS dew EXPORT dew-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

# Public is every header that needs nothing but ours: not the two wrappers of third-party headers
# in base, the kernels, the communicators and the command line. tools/check_layers proves that no
# other header includes one of these or third-party code.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/dew DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h"
        PATTERN "base/format.h" EXCLUDE
        PATTERN "base/json.h" EXCLUDE
        PATTERN "data/tokenizers/json_parts.h" EXCLUDE
        PATTERN "*-inl.h" EXCLUDE
        PATTERN "*_test*.h" EXCLUDE
        PATTERN "testdata" EXCLUDE
        PATTERN "runtime/cpu" EXCLUDE
        PATTERN "runtime/comm" EXCLUDE
        PATTERN "runtime/pjrt" EXCLUDE
        PATTERN "cli" EXCLUDE)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dew)
install(EXPORT dew-targets NAMESPACE dew:: DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dew-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dew-config-version.cmake
              ${PROJECT_SOURCE_DIR}/cmake/dew-config.cmake
              ${PROJECT_SOURCE_DIR}/cmake/deps.cmake
        DESTINATION ${package_dir})
