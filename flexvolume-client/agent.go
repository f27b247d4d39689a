package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

const (
	// bodyLimit is what a reply may have; no real one has a thousandth of it.
	bodyLimit = 1 << 20
	// wireLimit bounds headers and the framing of chunks as well.
	wireLimit = 16 * bodyLimit
	// patience is for a queue of callers before the agent's socket, as after a reboot.
	patience = 10 * time.Second
	pause    = 20 * time.Millisecond
)

// ask posts a request to the agent and makes the one reply of whatever comes back.
func ask(command string, request map[string]any) reply {
	socket, err := socketPath()
	if err != nil {
		return failure("%s: %v", command, err)
	}
	limit, err := timeLimit()
	if err != nil {
		return failure("%s: %v", command, err)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return failure("%s: %v", command, err)
	}
	deadline := time.Now().Add(limit)
	connection, err := dial(socket, deadline)
	if err != nil {
		return failure("the agent does not answer at %s: %s; is its pod running on this node?", socket, reason(socket, err))
	}
	defer connection.Close()
	code, answer, err := exchange(connection, deadline, command, body)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return failure("the agent at %s has not answered %s within %v: it may still be at work, and kubelet asks again; see the log of its pod on this node", socket, command, limit)
	}
	if err != nil {
		return failure("the agent at %s gave no whole answer to %s: %v; see the log of its pod on this node", socket, command, err)
	}
	return judge(socket, command, code, answer)
}

// dial connects. While the queue of the socket is full the kernel refuses at once, so that is
// tried again for a while.
func dial(socket string, deadline time.Time) (net.Conn, error) {
	dialer := net.Dialer{Deadline: deadline}
	waited := time.Now().Add(patience)
	for {
		connection, err := dialer.Dial("unix", socket)
		if !errors.Is(err, syscall.EAGAIN) || time.Now().After(waited) || time.Now().After(deadline) {
			return connection, err
		}
		time.Sleep(pause)
	}
}

// exchange sends the request and reads one whole answer before the deadline: redirects are not
// followed, and nothing goes on in the background.
func exchange(connection net.Conn, deadline time.Time, command string, body []byte) (int, []byte, error) {
	if err := connection.SetDeadline(deadline); err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequest(http.MethodPost, "http://localvolume/"+command, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Close = true
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "localvolume-flexvolume/"+version)
	sent := request.Write(connection)
	// Also where not all could be sent: an agent that refuses says why before it hangs up.
	response, err := http.ReadResponse(bufio.NewReader(io.LimitReader(connection, wireLimit)), request)
	if err != nil {
		return 0, nil, errors.Join(sent, err)
	}
	// The body is not closed, for that would read on to its end; the connection is.
	answer, err := io.ReadAll(io.LimitReader(response.Body, bodyLimit+1))
	if err != nil {
		return 0, nil, err
	}
	if len(answer) > bodyLimit {
		return 0, nil, fmt.Errorf("it is longer than %d bytes", bodyLimit)
	}
	return response.StatusCode, answer, nil
}

// judge passes on what is right, and only that.
func judge(socket, command string, code int, answer []byte) reply {
	result, err := parseReply(answer)
	switch {
	case code != http.StatusOK && (err != nil || result.Status != failed):
		return failure("the agent at %s refused %s with HTTP %d: %s", socket, command, code, excerpt(answer))
	case err != nil:
		return failure("what answers at %s is not the agent, or not of this version: its answer to %s is %v: %s", socket, command, err, excerpt(answer))
	case result.Status == notSupported:
		// Kubelet would never ask again until it restarts, and bind-mount a directory instead.
		return failure("the agent at %s says that %s is not supported (%s): is it of this version?", socket, command, excerpt([]byte(result.Message)))
	case result.Status == failed && result.Message == "":
		result.Message = "the agent gave no reason; see the log of its pod on this node"
	}
	return result
}

// excerpt is enough of an answer to recognise it by.
func excerpt(answer []byte) string {
	text := cut(string(bytes.TrimSpace(answer)), 300)
	if text == "" {
		return "(nothing)"
	}
	return text
}

// reason says why there is no connection in words that name a remedy where there is one.
func reason(socket string, err error) string {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return "there is no such socket"
	case errors.Is(err, syscall.ECONNREFUSED):
		if found, failed := os.Stat(socket); failed == nil && found.Mode()&os.ModeSocket == 0 {
			return "that is not a socket"
		}
		return "nobody listens there"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return "permission denied, this must run as root, as kubelet does"
	case errors.Is(err, syscall.EAGAIN):
		return "too many callers wait for it"
	}
	return err.Error()
}
