/*
 * Preloaded into User-mode Linux on processors with AMX: lets it set a process's registers.
 *
 * Before 6.11 it reserves less than 3 KiB for a processor's extended registers. With AMX they are
 * 11 KiB, and the kernel of the machine refuses to set only the first of them, with EFAULT, so the
 * guest panics before its first process. Here what is set is made whole: what User-mode Linux
 * knows, which is all but the tiles of AMX, and behind it what the process has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

typedef long (*call)(enum __ptrace_request, long, void *, void *);

long ptrace(enum __ptrace_request request, ...)
{
	static call real;
	static char registers[1 << 16];
	struct iovec whole = { registers, sizeof(registers) };

	if (!real)
		real = (call)dlsym(RTLD_NEXT, "ptrace");

	va_list arguments;
	va_start(arguments, request);
	long pid = va_arg(arguments, long);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE) {
		const struct iovec *known = data;
		if (real(PTRACE_GETREGSET, pid, address, &whole) == 0
		    && known->iov_len < whole.iov_len) {
			memcpy(registers, known->iov_base, known->iov_len);
			data = &whole;
		}
	}
	return real(request, pid, address, data);
}
