# Tests that are scripts. Included at the top level, after everything is defined.

add_test(NAME check_layers COMMAND ${PROJECT_SOURCE_DIR}/tools/check_layers)

# A sanitized libdew.a would need the consumer to be sanitized as well.
if(NOT DEW_SANITIZE AND TARGET dew_program)
  add_test(NAME install COMMAND ${PROJECT_SOURCE_DIR}/tests/install/run ${PROJECT_BINARY_DIR})
  set_tests_properties(install PROPERTIES TIMEOUT 300)
endif()

# The long ones first, so that two cores end together.
foreach(name test_conformance test_training install)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endforeach()
