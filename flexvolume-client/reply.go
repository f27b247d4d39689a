package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The statuses as kubelet compares them: to the letter.
const (
	success      = "Success"
	failed       = "Failure"
	notSupported = "Not supported"
)

// messageLimit is in characters: a message becomes an event and a line of kubelet's log.
const messageLimit = 4096

// reply is what kubelet reads, and nothing besides.
type reply struct {
	Status        string          `json:"status"`
	Message       string          `json:"message"`
	Device        string          `json:"device,omitempty"`
	VolumeName    string          `json:"volumeName,omitempty"`
	Attached      bool            `json:"attached,omitempty"`
	Capabilities  map[string]bool `json:"capabilities,omitempty"`
	VolumeNewSize int64           `json:"volumeNewSize,omitempty"`
}

func failure(format string, arguments ...any) reply {
	return reply{Status: failed, Message: fmt.Sprintf(format, arguments...)}
}

// print writes the reply as one line, in one write.
func (r reply) print(to io.Writer) error {
	r.Message = cut(r.Message, messageLimit)
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return err
	}
	_, err := to.Write(line.Bytes())
	return err
}

// cut shortens a text to a number of characters and says so.
func cut(text string, characters int) string {
	if len(text) <= characters {
		return text
	}
	runes := []rune(text)
	if len(runes) <= characters {
		return text
	}
	return string(runes[:characters-1]) + "…"
}

// parseReply reads what the agent said. The error says what is wrong with it.
func parseReply(body []byte) (reply, error) {
	members, err := parseObject(body)
	if err != nil {
		return reply{}, err
	}
	var result reply
	for key, raw := range members {
		if raw[0] == 'n' {
			// Nothing is said, as if the key were absent.
			continue
		}
		switch key {
		case "status":
			result.Status, err = text(raw)
		case "message":
			result.Message, err = text(raw)
		case "device":
			result.Device, err = text(raw)
		case "volumeName":
			result.VolumeName, err = text(raw)
		case "attached":
			result.Attached, err = boolean(raw)
		case "capabilities":
			result.Capabilities, err = capabilities(raw)
		case "volumeNewSize":
			result.VolumeNewSize, err = size(raw)
		}
		if err != nil {
			return reply{}, fmt.Errorf("an object whose %q is %w", key, err)
		}
	}
	switch result.Status {
	case success, failed, notSupported:
		return result, nil
	}
	return reply{}, fmt.Errorf("an object with the unknown status %.40q", result.Status)
}

func text(raw json.RawMessage) (string, error) {
	if raw[0] != '"' {
		return "", fmt.Errorf("%s, not a string", kind(raw))
	}
	var value string
	err := json.Unmarshal(raw, &value)
	return value, err
}

func boolean(raw json.RawMessage) (bool, error) {
	if raw[0] != 't' && raw[0] != 'f' {
		return false, fmt.Errorf("%s, not a boolean", kind(raw))
	}
	return raw[0] == 't', nil
}

// size reads bytes as kubelet does: 1e9 and 1.0 are no int64 to it.
func size(raw json.RawMessage) (int64, error) {
	value, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || value < 0 {
		return 0, fmt.Errorf("%.40s, not a number of bytes", raw)
	}
	return value, nil
}

func capabilities(raw json.RawMessage) (map[string]bool, error) {
	members, err := parseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind(raw), err)
	}
	known := map[string]bool{}
	for _, key := range strings.Fields("attach selinuxRelabel supportsMetrics fsGroup requiresFSResize") {
		value, said := members[key]
		if !said || value[0] == 'n' {
			continue
		}
		if known[key], err = boolean(value); err != nil {
			return nil, fmt.Errorf("wrong: %q is %w", key, err)
		}
	}
	return known, nil
}
