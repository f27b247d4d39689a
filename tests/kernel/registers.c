/*
 * Preloaded into User-mode Linux: sets a process's vector registers where that is needed.
 *
 * Its kernel reads them whenever a process stops, and sets them whenever it goes on: for each system
 * call, though they seldom are others than they were. What was just read is not set again.
 *
 * And on processors with AMX it lets them be set at all. Before 6.11 User-mode Linux reserves less
 * than 3 KiB for them. With AMX they are 11 KiB, and the kernel of the machine refuses to set only
 * the first of them, with EFAULT, so the guest panics before its first process. There what is set is
 * made whole: what User-mode Linux knows, which is all but the tiles of AMX, and behind it what the
 * process has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

typedef long (*call)(enum __ptrace_request, long, void *, void *);

#define PROCESSES 256
#define MOST 4096

/* What processes have in their registers, as long as they are stopped; by the last bits of the pid. */
static struct known {
	long pid;
	size_t length;
	char registers[MOST];
} processes[PROCESSES];

static call real;

static long set_whole(long pid, void *address, struct iovec *given)
{
	static char registers[1 << 16];
	static size_t length;
	struct iovec whole = { registers, sizeof(registers) };

	/* All processes have as many; and only where they are more need they be read. */
	if ((length == 0 || given->iov_len < length)
	    && real(PTRACE_GETREGSET, pid, address, &whole) == 0) {
		length = whole.iov_len;
		if (given->iov_len < length) {
			memcpy(registers, given->iov_base, given->iov_len);
			given = &whole;
		}
	}
	return real(PTRACE_SETREGSET, pid, address, given);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	long pid = va_arg(arguments, long);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	struct iovec *vector = data;
	struct known *known = &processes[(unsigned long)pid % PROCESSES];
	size_t asked;
	long result;

	if (!real)
		real = (call)dlsym(RTLD_NEXT, "ptrace");
	switch (request) {
	case PTRACE_GETREGS:
	case PTRACE_SETREGS:
	case PTRACE_GETSIGINFO:
		/* They leave the vector registers as they are. */
		return real(request, pid, address, data);
	case PTRACE_GETREGSET:
		asked = vector->iov_len;
		result = real(request, pid, address, data);
		if (address != (void *)NT_X86_XSTATE)
			return result;
		known->pid = 0;
		/* With less than was asked for it is all that there is. */
		if (result == 0 && vector->iov_len < asked && vector->iov_len <= MOST) {
			known->pid = pid;
			known->length = vector->iov_len;
			memcpy(known->registers, vector->iov_base, vector->iov_len);
		}
		return result;
	case PTRACE_SETREGSET:
		if (address != (void *)NT_X86_XSTATE)
			break;
		/* What is longer than all that there is, is cut off by the kernel. */
		if (known->pid == pid && known->length <= vector->iov_len
		    && memcmp(known->registers, vector->iov_base, known->length) == 0)
			return 0;
		known->pid = 0;
		return set_whole(pid, address, vector);
	default:
		break;
	}
	/* It may go on now, and with other registers than were read. */
	if (known->pid == pid)
		known->pid = 0;
	return real(request, pid, address, data);
}
