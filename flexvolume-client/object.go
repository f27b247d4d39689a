package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// parseObject reads exactly one JSON object and keeps its values as they are. A key that comes
// twice is refused: readers differ in which of the two they believe.
func parseObject(text []byte) (map[string]json.RawMessage, error) {
	if !json.Valid(text) {
		return nil, errors.New("not one JSON value")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return nil, errors.New("JSON, but not an object")
	}
	members := map[string]json.RawMessage{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		if _, twice := members[key]; twice {
			return nil, fmt.Errorf("an object that has %.100q twice", key)
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, err
		}
		members[key] = raw
	}
	return members, nil
}

// kind says in words what a valid JSON value is.
func kind(raw json.RawMessage) string {
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
