# find_package(dew) gives the target dew::dew. libdew.a needs the libraries that it was made with.
set(DEW_LINK_ONLY ON)
set(DEW_BUILD_TESTS OFF)
set(DEW_BUILD_BENCH OFF)
include(${CMAKE_CURRENT_LIST_DIR}/deps.cmake)
unset(DEW_LINK_ONLY)
unset(DEW_BUILD_TESTS)
unset(DEW_BUILD_BENCH)
include(${CMAKE_CURRENT_LIST_DIR}/dew-targets.cmake)
