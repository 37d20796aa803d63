/* The runtime of compiled modules as one translation unit; with TEC_CUDA it supports NVIDIA
 * GPUs. */
#include "tec_runtime.h"

#if defined(_WIN32)
#include "windows.c"
#elif defined(__APPLE__)
#include "macos.c"
#else
#include "system.c"
#endif
#include "cpu.c"
#include "error.c"
#include "check.c"
#include "range.c"
#include "float.c"
#include "workspace.c"
#include "threads.c"
#include "variants.c"
#include "pool.c"
#include "parallel.c"

#ifdef TEC_CUDA
#include "cuda.c"
#endif
