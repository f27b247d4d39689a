// The FlexVolume driver that kubelet runs: it asks the agent on this node and prints one JSON
// object, whatever happens. It needs nothing of the host: no libc, no interpreter, no PATH.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set when it is linked; the agent compares it with the client it would install.
var version = "development"

// callouts are what is answered with anything but "Not supported".
var callouts = map[string]func(arguments []string) reply{
	"init":    initialise,
	"mount":   mount,
	"unmount": unmount,
	"version": func([]string) reply { return reply{Status: success, Message: version} },
}

func main() {
	// A reader that has gone away is an error of the write, not a signal that ends us.
	signal.Ignore(syscall.SIGPIPE)
	silence()
	if err := answer(os.Args).print(os.Stdout); err != nil {
		os.Exit(1)
	}
}

// answer never panics: a bug is reported to kubelet like everything else.
func answer(argv []string) (result reply) {
	defer func() {
		if fault := recover(); fault != nil {
			result = failure("the FlexVolume client failed by itself, please report this: %v", fault)
		}
	}()
	if len(argv) < 2 {
		return failure("no callout was named: %s init | mount | unmount | version", program(argv))
	}
	callout, known := callouts[argv[1]]
	if !known {
		return reply{Status: notSupported, Message: fmt.Sprintf("%.40q is not supported: this driver has init, mount and unmount", argv[1])}
	}
	return callout(argv[2:])
}

func program(argv []string) string {
	if len(argv) == 0 {
		return "localvolume-flexvolume"
	}
	return argv[0]
}

// silence sends the standard error to nowhere. Kubelet reads it together with the standard output,
// so a single line that the Go runtime writes there would make any answer unreadable.
func silence() {
	null, err := syscall.Open("/dev/null", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_ = syscall.Dup3(null, 2, 0)
	_ = syscall.Close(null)
}
