"""Runs a program inside a node: enter.py PID PROGRAM [ARGUMENT ...], with the standard library.

PID is the process that holds the node's namespaces. Unlike nsenter it passes signals on, ends as
the program ends (by the same signal too), and takes the program with it when it is killed: who
starts a program through this can treat it as the program itself.
"""

import ctypes
import os
import signal
import sys

KINDS = ("net", "pid", "mnt")  # mnt last: /proc is another one after it
PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    holder, program = sys.argv[1], sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    here = os.getcwd()
    for descriptor in [os.open(f"/proc/{holder}/ns/{kind}", os.O_RDONLY) for kind in KINDS]:
        if libc.setns(descriptor, 0) != 0:
            sys.exit(f"the node's namespaces cannot be entered: {os.strerror(ctypes.get_errno())}")
        os.close(descriptor)
    try:
        os.chdir(here)
    except OSError:
        os.chdir("/")
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    # A PID namespace is entered by children only.
    if (child := os.fork()) == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        # Where mkfs, mount and iptables are, whatever the user's PATH has.
        os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
        try:
            os.execvp(program[0], program)  # noqa: S606  there is no shell to want
        except OSError as error:
            sys.stderr.write(f"{program[0]}: {error.strerror}\n")
            os._exit(127)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
