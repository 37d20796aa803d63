# Kernels of `tec` in CMake projects:
#
#   find_package(tec REQUIRED)
#   add_tec_library(matmul FROM matmul.te)
#   target_link_libraries(program PRIVATE matmul)
#
# docs/INTEGRATION.md describes `add_tec_library`. The package defines
#
#   TEC_EXECUTABLE  the compiler, a cache entry; found beside the package or on the PATH
#   tec::tec        the compiler as an imported target
#   TEC_TARGETS     not defined here: a project may set the default of TARGETS

if(CMAKE_VERSION VERSION_LESS 3.20)
    set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
    set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE
        "tec needs CMake 3.20 or later; this is ${CMAKE_VERSION}.")
    return()
endif()

# The compiler runs on the machine that builds, also if the program does not. The places are those
# of an installation (PREFIX/lib/cmake/tec), of the source tree, of a Python environment
# (lib/python3.*/site-packages/tec_compiler/cmake), and of `pip install --target`.
find_program(TEC_EXECUTABLE tec
    HINTS
        "${CMAKE_CURRENT_LIST_DIR}/../../../bin"
        "${CMAKE_CURRENT_LIST_DIR}/../target/release"
        "${CMAKE_CURRENT_LIST_DIR}/../../../../../bin"
        "${CMAKE_CURRENT_LIST_DIR}/../../bin"
    NO_CMAKE_FIND_ROOT_PATH
    DOC "The compiler tec")
if(NOT TEC_EXECUTABLE)
    set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
    set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE
        "The compiler `tec` is neither beside this package nor on the PATH. Build it (`cargo build \
--release`), or give its path: -DTEC_EXECUTABLE=/path/to/tec")
    return()
endif()

# Package and compiler agree on options, so they have one version.
include("${CMAKE_CURRENT_LIST_DIR}/tec-config-version.cmake")
execute_process(
    COMMAND "${TEC_EXECUTABLE}" --version
    OUTPUT_VARIABLE _tec_version
    ERROR_VARIABLE _tec_error
    RESULT_VARIABLE _tec_status
    OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT _tec_status EQUAL 0 OR NOT _tec_version STREQUAL "tec ${PACKAGE_VERSION}")
    set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
    set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE
        "This package needs `tec ${PACKAGE_VERSION}`, but `${TEC_EXECUTABLE} --version` says: \
${_tec_version}${_tec_error} (${_tec_status}). Give the path of another compiler: \
-DTEC_EXECUTABLE=/path/to/tec")
    return()
endif()

include(CMakeFindDependencyMacro)
find_dependency(Threads)

if(NOT TARGET tec::tec)
    add_executable(tec::tec IMPORTED GLOBAL)
    set_target_properties(tec::tec PROPERTIES IMPORTED_LOCATION "${TEC_EXECUTABLE}")
endif()

# Sets OUT to the targets of a library that names none: those of the project, or the one that every
# CPU of the program's family has. It is never the machine that builds.
function(_tec_default_targets out)
    if(TEC_TARGETS)
        set(${out} ${TEC_TARGETS} PARENT_SCOPE)
        return()
    endif()
    string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" processor)
    if(processor MATCHES "^(x86_64|amd64|x64)$")
        set(${out} x86-64 PARENT_SCOPE)
    elseif(processor MATCHES "^(aarch64|arm64)$")
        set(${out} aarch64 PARENT_SCOPE)
    elseif(processor STREQUAL "riscv64")
        set(${out} riscv64 PARENT_SCOPE)
    else()
        message(FATAL_ERROR
            "add_tec_library: no target of tec is known for CMAKE_SYSTEM_PROCESSOR \
`${CMAKE_SYSTEM_PROCESSOR}`. Kernels run on x86_64, aarch64 and riscv64; name a target with \
TARGETS or TEC_TARGETS (`tec targets` lists them).")
    endif()
endfunction()

# add_tec_library(NAME FROM FILE [MODULE NAME] [PREFIX PREFIX] [SHARED]
#                 [KERNELS NAME...] [TARGETS NAME...] [CPU NAME] [SCHEDULE [KERNEL.]NAME]
#                 [TYPICAL NAME=VALUE,...]...
#                 [DEFINES NAME=VALUE...] [PREPACK [KERNEL.]INPUT...]
#                 [RECORDS FILE] [PARAMS FILE] [FREEZE NAME=VALUE...]
#                 [FP_CONTRACT fast|off] [FAST_MATH] [NO_WINOGRAD] [OPT 0...3])
#
# Compiles a `.te` file or an ONNX model to a library. Targets that link it find the header
# `MODULE.h`; MODULE is NAME if it is not given.
function(add_tec_library name)
    set(flags SHARED FAST_MATH NO_WINOGRAD)
    set(single FROM MODULE PREFIX CPU SCHEDULE RECORDS PARAMS FP_CONTRACT OPT)
    set(several KERNELS TARGETS DEFINES PREPACK FREEZE TYPICAL)
    cmake_parse_arguments(PARSE_ARGV 1 arg "${flags}" "${single}" "${several}")
    set(where "add_tec_library(${name})")
    if(arg_UNPARSED_ARGUMENTS)
        list(JOIN arg_UNPARSED_ARGUMENTS "`, `" unknown)
        list(JOIN single ", " single)
        list(JOIN several ", " several)
        list(JOIN flags ", " flags)
        message(FATAL_ERROR "${where}: unknown argument `${unknown}`. One value: ${single}. \
Several values: ${several}. No value: ${flags}.")
    endif()
    if(arg_KEYWORDS_MISSING_VALUES)
        list(JOIN arg_KEYWORDS_MISSING_VALUES "`, `" missing)
        message(FATAL_ERROR "${where}: no value for `${missing}`.")
    endif()
    if(NOT arg_FROM)
        message(FATAL_ERROR "${where}: name the source: FROM ${name}.te")
    endif()
    if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
        message(FATAL_ERROR "${where}: kernels run on Linux; CMAKE_SYSTEM_NAME is \
`${CMAKE_SYSTEM_NAME}`.")
    endif()
    if(CMAKE_C_COMPILER_LOADED)
        set(language C)
    elseif(CMAKE_CXX_COMPILER_LOADED)
        set(language CXX)
    endif()
    if(NOT language OR NOT CMAKE_AR)
        message(FATAL_ERROR "${where}: it needs a C or C++ compiler with `ar`: write `project(... \
LANGUAGES C)` or `CXX` before it.")
    endif()

    set(module "${name}")
    if(arg_MODULE)
        set(module "${arg_MODULE}")
    endif()
    if(NOT module MATCHES "^[A-Za-z][A-Za-z0-9_]*$" OR module MATCHES "^(tec|tec_runtime)$")
        message(FATAL_ERROR "${where}: `${module}` cannot be the name of a module, because C \
functions are named after it. Give another one: MODULE my_${name}, with letters, digits and `_`.")
    endif()
    if(NOT arg_TARGETS)
        _tec_default_targets(arg_TARGETS)
    endif()
    if("native" IN_LIST arg_TARGETS AND CMAKE_CROSSCOMPILING)
        message(FATAL_ERROR "${where}: `native` is the machine that builds, but the program is for \
another one (CMAKE_CROSSCOMPILING).")
    endif()

    set(folder "${CMAKE_CURRENT_BINARY_DIR}/tec/${name}")
    file(MAKE_DIRECTORY "${folder}")
    get_filename_component(source "${arg_FROM}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    set(inputs "${source}")
    list(JOIN arg_TARGETS "," targets)
    set(options --module "${module}" --target "${targets}")
    foreach(kernel IN LISTS arg_KERNELS)
        list(APPEND options --kernel "${kernel}")
    endforeach()
    foreach(define IN LISTS arg_DEFINES)
        list(APPEND options -D "${define}")
    endforeach()
    foreach(sizes IN LISTS arg_TYPICAL)
        list(APPEND options --typical "${sizes}")
    endforeach()
    foreach(input IN LISTS arg_PREPACK)
        list(APPEND options --prepack "${input}")
    endforeach()
    foreach(pair IN LISTS arg_FREEZE)
        if(NOT pair MATCHES "^([^=]+)=(.+)$")
            message(FATAL_ERROR
                "${where}: FREEZE takes NAME=NUMBER or NAME=FILE.npy, not `${pair}`.")
        endif()
        set(frozen "${CMAKE_MATCH_1}")
        set(value "${CMAKE_MATCH_2}")
        if(value MATCHES "[.]npy$")
            get_filename_component(value "${value}" ABSOLUTE
                BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
            list(APPEND inputs "${value}")
        endif()
        list(APPEND options --freeze "${frozen}=${value}")
    endforeach()
    foreach(option RECORDS PARAMS)
        if(arg_${option})
            get_filename_component(file "${arg_${option}}" ABSOLUTE
                BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
            string(TOLOWER "${option}" long)
            list(APPEND options "--${long}" "${file}")
            list(APPEND inputs "${file}")
        endif()
    endforeach()
    if(DEFINED arg_PREFIX)
        list(APPEND options --prefix "${arg_PREFIX}")
    endif()
    if(DEFINED arg_CPU)
        list(APPEND options --cpu "${arg_CPU}")
    endif()
    if(DEFINED arg_SCHEDULE)
        list(APPEND options --schedule "${arg_SCHEDULE}")
    endif()
    # `off` is a false constant in `if`.
    if(DEFINED arg_FP_CONTRACT)
        list(APPEND options --fp-contract "${arg_FP_CONTRACT}")
    endif()
    if(DEFINED arg_OPT)
        list(APPEND options --opt "${arg_OPT}")
    endif()
    if(arg_NO_WINOGRAD)
        list(APPEND options --no-winograd)
    endif()
    if(arg_FAST_MATH)
        list(APPEND options --fast-math)
    endif()
    foreach(file IN LISTS inputs)
        get_source_file_property(generated "${file}" GENERATED)
        if(NOT generated AND NOT EXISTS "${file}")
            message(FATAL_ERROR "${where}: there is no file `${file}`.")
        endif()
    endforeach()

    # The library of `tec` is unpacked, so that CMake makes the library that is linked and
    # installed. It has the same objects. Linkers take `tec_runtime.o` from one library only.
    set(objects "${folder}/${module}.o" "${folder}/tec_runtime.o")
    get_filename_component(shown "${source}" NAME)
    # The first output is one that the file of dependencies names: makefiles test that one.
    add_custom_command(
        OUTPUT "${folder}/${module}.a" "${folder}/${module}.h" "${folder}/${module}.json" ${objects}
        COMMAND "${TEC_EXECUTABLE}" build "${source}" -o "${folder}/${module}.a" ${options}
            --depfile "${folder}/${module}.d"
        COMMAND "${CMAKE_AR}" x "${module}.a"
        DEPENDS ${inputs} "${TEC_EXECUTABLE}"
        DEPFILE "${folder}/${module}.d"
        WORKING_DIRECTORY "${folder}"
        COMMENT "Compiling kernels of ${shown} for ${targets}"
        VERBATIM)
    set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    set(kind STATIC)
    if(arg_SHARED)
        set(kind SHARED)
    endif()
    add_library(${name} ${kind} ${objects} "${folder}/${module}.h")
    set_target_properties(${name} PROPERTIES
        LINKER_LANGUAGE ${language}
        PUBLIC_HEADER "${folder}/${module}.h")
    target_include_directories(${name} PUBLIC "$<BUILD_INTERFACE:${folder}>")
    target_link_libraries(${name} PUBLIC Threads::Threads)
endfunction()
