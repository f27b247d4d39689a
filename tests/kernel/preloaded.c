/*
 * Preloaded into what runs in a guest, where a program's start and a page's first touch are dear.
 *
 * A page that is touched for the first time is a trap, and costs 50 microseconds and more in
 * User-mode Linux. Each command of LVM begins by zeroing 2.6 MB (its table of commands), which is a
 * quarter of what it takes. The guest's kernel finds all the pages in one call, and maps them in one
 * go when their protection changes. So it is done with a program's code, too, before it begins.
 *
 * setpriv takes 20 milliseconds to start, a fifth of a command of LVM, for one call to the kernel,
 * which is made here. Where its program cannot be started, setpriv itself is, and says why.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of Linux 5.14; younger than some C libraries. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define MUCH (1UL << 20)
#define PAGE 4096UL

/* The pages of a mapping, with its protection, all at once. */
static void map_at_once(uintptr_t first, size_t length, int populate, int protection)
{
	if (madvise((void *)first, length, populate) == 0
	    && mprotect((void *)first, length, PROT_READ | PROT_WRITE | PROT_EXEC) == 0)
		mprotect((void *)first, length, protection);
}

static int map_what_is_not_written(struct dl_phdr_info *object, size_t size, void *data)
{
	(void)size;
	(void)data;
	for (int n = 0; n < object->dlpi_phnum; n++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[n];

		if (part->p_type == PT_LOAD && !(part->p_flags & PF_W)) {
			uintptr_t begin = (object->dlpi_addr + part->p_vaddr) & -PAGE;
			uintptr_t end = object->dlpi_addr + part->p_vaddr + part->p_memsz;

			map_at_once(begin, ((end + PAGE - 1) & -PAGE) - begin, MADV_POPULATE_READ,
				    PROT_READ | (part->p_flags & PF_X ? PROT_EXEC : 0));
		}
	}
	return 0;
}

__attribute__((constructor)) static void map_all_code(void)
{
	dl_iterate_phdr(map_what_is_not_written, NULL);
}

void *memset(void *to, int byte, size_t count)
{
	if (count >= MUCH) {
		/* Only whole pages: who zeroes memory may write to these, and has a right to no other. */
		uintptr_t first = ((uintptr_t)to + PAGE - 1) & -PAGE;
		size_t length = (((uintptr_t)to + count) & -PAGE) - first;

		map_at_once(first, length, MADV_POPULATE_WRITE, PROT_READ | PROT_WRITE);
	}
	void *at = to;
	__asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(byte) : "memory");
	return to;
}

/* As execvp(3) looks for it, but in that environment. Returns only where there is no such program. */
static void start_what_is_found(char *const argv[], char *const environment[])
{
	const char *name = argv[0], *directories = NULL;
	char path[4096];

	if (strchr(name, '/')) {
		syscall(SYS_execve, name, argv, environment);
		return;
	}
	for (char *const *one = environment; *one; one++)
		if (strncmp(*one, "PATH=", 5) == 0)
			directories = *one + 5;
	while (directories && *directories) {
		int length = (int)strcspn(directories, ":");

		if (snprintf(path, sizeof path, "%.*s/%s", length, directories, name) < (int)sizeof path)
			syscall(SYS_execve, path, argv, environment);
		directories += length + (directories[length] == ':');
	}
}

int execve(const char *program, char *const argv[], char *const environment[])
{
	static const char *const words[] = {"--pdeathsig", "KILL", "--"};
	const char *name = strrchr(program, '/');
	int given = 0;

	while (given < 3 && argv[given] && argv[given + 1] && strcmp(argv[given + 1], words[given]) == 0)
		given++;
	if (name && strcmp(name, "/setpriv") == 0 && given == 3 && argv[4] && environment) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		start_what_is_found(argv + 4, environment);
	}
	return (int)syscall(SYS_execve, program, argv, environment);
}

/* The C library's own would not ask the one above. */
int execv(const char *program, char *const argv[])
{
	return execve(program, argv, environ);
}
