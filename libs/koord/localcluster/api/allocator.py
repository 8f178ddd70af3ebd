"""One malloc arena for the whole process, because memory moves between the threads of this server.

glibc gives threads heaps of their own, and what is freed in one cannot be used by another. Request bodies are made in
granian's thread and freed in the event loop's, which keeps them for its next small allocation: a JSON encoder's first
buffer. It grows by realloc, which stays in the heap where it began, and so, from some moment on, every object is
stored in the other thread's heap while the first one keeps its holes. Under churn that doubled the process.
"""

import ctypes

_M_ARENA_MAX = -8


def use_one_arena() -> bool:
    """Let all threads share one heap. To be called before there are any; False where malloc is not glibc's.

    Threads that are in Python take turns anyway, and small pieces come from caches per thread, so the lock of the
    heap is hardly ever waited for.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, 1))
