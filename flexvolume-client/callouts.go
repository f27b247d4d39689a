package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"unicode/utf8"
)

// initialise answers without the agent, so that kubelet finds the driver before the agent's pod
// runs. What kubelet assumes where a capability is absent is not ours: all of them are said.
func initialise([]string) reply {
	return reply{
		Status:  success,
		Message: "driver is available",
		Capabilities: map[string]bool{
			// Nothing is attached: kubelet then calls mount and unmount only.
			"attach": false,
			// The filesystems that we make hold labels.
			"selinuxRelabel": true,
			// Kubelet's statfs of the mount shows the volume's own filesystem.
			"supportsMetrics": true,
			// Kubelet hands the volume to the pod's group after mount.
			"fsGroup": true,
			// The agent grows the filesystem. Else kubelet would call expandfs, and without that
			// run resize2fs on a device that it does not know, and fail the mount.
			"requiresFSResize": false,
		},
	}
}

func mount(arguments []string) reply {
	if len(arguments) < 1 || len(arguments) > 2 {
		return failure("mount takes a directory and the options as a JSON object; it was given %d arguments", len(arguments))
	}
	target, err := directory(arguments[0])
	if err != nil {
		return failure("mount: %v", err)
	}
	options := map[string]string{}
	if len(arguments) == 2 {
		if options, err = parseOptions(arguments[1]); err != nil {
			return failure("mount: the options %v", err)
		}
	}
	return ask("mount", map[string]any{"targetDir": target, "options": options})
}

func unmount(arguments []string) reply {
	if len(arguments) != 1 {
		return failure("unmount takes a directory; it was given %d arguments", len(arguments))
	}
	target, err := directory(arguments[0])
	if err != nil {
		return failure("unmount: %v", err)
	}
	return ask("unmount", map[string]any{"targetDir": target})
}

// directory refuses what JSON cannot carry unchanged: another directory would be mounted on.
func directory(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("the directory %.200q is not an absolute path", path)
	}
	if !utf8.ValidString(path) {
		return "", fmt.Errorf("the directory %.200q is not UTF-8", path)
	}
	return path, nil
}

// parseOptions reads the flat map of strings that kubelet passes. Its errors go on from "the options".
func parseOptions(text string) (map[string]string, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("are not UTF-8")
	}
	members, err := parseObject([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("are %w", err)
	}
	options := make(map[string]string, len(members))
	for key, raw := range members {
		// Checked here, for null would be taken for "".
		if raw[0] != '"' {
			return nil, fmt.Errorf("must be strings, and %.100q is %s", key, kind(raw))
		}
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, fmt.Errorf("cannot be read at %.100q: %w", key, err)
		}
		options[key] = value
	}
	return options, nil
}
