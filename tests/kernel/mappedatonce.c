/*
 * Preloaded into what runs in a guest: much memory is mapped at once, and not page by page.
 *
 * A page that is touched for the first time is a trap, and costs 50 microseconds and more in
 * User-mode Linux. Each command of LVM begins by zeroing 2.6 MB (its table of commands), which is a
 * quarter of what it takes. The guest's kernel finds all the pages in one call, and maps them in one
 * go when their protection changes.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

/* Of Linux 5.14; younger than some C libraries. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define MUCH (1UL << 20)
#define PAGE 4096UL

void *memset(void *to, int byte, size_t count)
{
	if (count >= MUCH) {
		/* Only whole pages: who zeroes memory may write to these, and has a right to no other. */
		uintptr_t first = ((uintptr_t)to + PAGE - 1) & -PAGE;
		size_t length = (((uintptr_t)to + count) & -PAGE) - first;

		if (madvise((void *)first, length, MADV_POPULATE_WRITE) == 0
		    && mprotect((void *)first, length, PROT_READ | PROT_WRITE | PROT_EXEC) == 0)
			mprotect((void *)first, length, PROT_READ | PROT_WRITE);
	}
	void *at = to;
	__asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(byte) : "memory");
	return to;
}
