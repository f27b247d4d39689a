/*
 * Ends with 0 where all threads of two processes keep their vector registers, whatever the kernel
 * does between two looks: other threads' turns, other processes', and signals.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 3
#define TURNS 400

struct registers {
	uint64_t word[32];
} __attribute__((aligned(16)));

#define EACH(DO) \
	DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15)
#define LOAD(n) "movdqa " #n "*16(%[given]), %%xmm" #n "\n\t"
#define STORE(n) "movdqa %%xmm" #n ", " #n "*16(%[found])\n\t"
#define CHANGED(n) , "xmm" #n

static long call_with(const struct registers *given, struct registers *found, long number, long first,
		      void *second, long third)
{
	long result = number;

	__asm__ volatile(EACH(LOAD) "syscall\n\t" EACH(STORE)
			 : "+a"(result)
			 : [given] "r"(given), [found] "r"(found), "D"(first), "S"(second), "d"(third)
			 : "rcx", "r11", "memory" EACH(CHANGED));
	return result;
}

static void fill(struct registers *all, uint64_t with)
{
	for (int n = 0; n < 32; n++)
		all->word[n] = with * 1000003 + n;
}

static void in_between(int signal)
{
	struct registers own, found;

	fill(&own, 77 + signal);
	call_with(&own, &found, SYS_getppid, 0, NULL, 0);
}

/* A byte goes round; who reads it waits until the others have had their turns. */
static int pipes[THREADS][2];

static void *keep(void *which)
{
	struct registers own, found;
	uintptr_t me = (uintptr_t)which;
	char byte;

	for (uintptr_t turn = 0; turn < TURNS; turn++) {
		/* The same for some turns, as what a process has in them seldom changes. */
		fill(&own, me + turn / 5 * 64 + 8 * (getpid() % 8));
		if (call_with(&own, &found, SYS_read, pipes[me][0], &byte, 1) != 1
		    || memcmp(&own, &found, sizeof own) != 0)
			return "lost by reading";
		if (turn % 16 == 0
		    && (call_with(&own, &found, SYS_tgkill, getpid(), (void *)(long)gettid(), SIGUSR1) != 0
			|| memcmp(&own, &found, sizeof own) != 0))
			return "lost by a signal";
		if (call_with(&own, &found, SYS_write, pipes[(me + 1) % THREADS][1], &byte, 1) != 1
		    || memcmp(&own, &found, sizeof own) != 0)
			return "lost by writing";
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	int status = 0, failed = 0;

	signal(SIGUSR1, in_between);
	pid_t other = fork();
	for (int n = 0; n < THREADS; n++)
		if (pipe(pipes[n]) != 0)
			return 1;
	for (uintptr_t n = 0; n < THREADS; n++)
		pthread_create(&threads[n], NULL, keep, (void *)n);
	if (write(pipes[0][1], "", 1) != 1)
		return 1;
	for (int n = 0; n < THREADS; n++) {
		void *said;

		pthread_join(threads[n], &said);
		if (said) {
			fprintf(stderr, "thread %d: registers %s\n", n, (char *)said);
			failed = 1;
		}
	}
	if (other > 0)
		waitpid(other, &status, 0);
	return failed || status != 0;
}
