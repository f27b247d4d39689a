package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	defaultSocket = "/run/localvolume/flexvolume.sock"
	// socketLimit is what sun_path holds, less the byte that ends it.
	socketLimit = 107
	// defaultTimeout is two minutes less than the longest wait that kubelet itself has (for a
	// device); for mount and unmount it has none, and a call that hangs blocks the volume.
	defaultTimeout = 8 * time.Minute
	longestTimeout = 24 * time.Hour

	socketVariable  = "LOCALVOLUME_FLEXVOLUME_SOCKET"
	timeoutVariable = "LOCALVOLUME_FLEXVOLUME_TIMEOUT"
)

// socketPath is where the agent listens: what `.socket` beside this executable says, since each
// driver that an agent installs has its own. A file that is wrong is not passed over: the default
// may be another agent's.
func socketPath() (string, error) {
	if path := os.Getenv(socketVariable); path != "" {
		return path, check(socketVariable, path)
	}
	// The kernel has resolved symlinks, and knows the directory even after an upgrade of the file.
	executable, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("it cannot be told where this executable is: %w", err)
	}
	file := filepath.Join(filepath.Dir(executable), ".socket")
	content, err := readSmall(file)
	if errors.Is(err, fs.ErrNotExist) {
		return defaultSocket, nil
	}
	if err != nil {
		return "", fmt.Errorf("%s cannot be read: %w; the agent writes it again when it starts", file, err)
	}
	path := strings.TrimSuffix(content, "\n")
	return path, check(file, path)
}

// readSmall reads a regular file of at most 4 KiB, and never waits for one that is none.
func readSmall(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	found, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !found.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	content, err := io.ReadAll(io.LimitReader(file, 4096))
	return string(content), err
}

func check(source, path string) error {
	switch {
	case path == "":
		return fmt.Errorf("%s is empty: it must hold the path of the agent's socket", source)
	case len(path) > socketLimit:
		return fmt.Errorf("%s names a path of %d bytes: a socket's path has at most %d", source, len(path), socketLimit)
	case !utf8.ValidString(path), strings.ContainsFunc(path, unicode.IsControl):
		return fmt.Errorf("%s must hold one line, the path of the agent's socket, not %q", source, path)
	case !filepath.IsAbs(path), filepath.Clean(path) != path:
		return fmt.Errorf("%s must hold an absolute path without detours, not %q", source, path)
	}
	return nil
}

// timeLimit is for a whole call: to connect, to be answered, and to read the answer.
func timeLimit() (time.Duration, error) {
	said := os.Getenv(timeoutVariable)
	if said == "" {
		return defaultTimeout, nil
	}
	seconds, err := strconv.ParseFloat(said, 64)
	if err != nil || math.IsNaN(seconds) || seconds <= 0 || seconds > longestTimeout.Seconds() {
		return 0, fmt.Errorf("%s must be a number of seconds, more than 0 and at most %.0f, not %.40q", timeoutVariable, longestTimeout.Seconds(), said)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
