package ingest

import (
	"errors"
	"strings"
)

// checkFilter says what is wrong with an MQTT topic filter (MQTT 3.1.1, 4.7.1).
func checkFilter(filter string) error {
	if filter == "" {
		return errors.New("is empty: give a topic such as \"sensors/+/state\" or \"sensors/#\"")
	}
	if strings.ContainsRune(filter, 0) {
		return errors.New("contains a zero byte: remove it")
	}
	levels := strings.Split(filter, "/")
	for i, level := range levels {
		switch {
		case level == "#" && i != len(levels)-1:
			return errors.New("has \"#\" before its last level: \"#\" may only end a topic")
		case level != "#" && strings.Contains(level, "#"):
			return errors.New("has \"#\" next to other characters: \"#\" stands alone in its level")
		case level != "+" && strings.Contains(level, "+"):
			return errors.New("has \"+\" next to other characters: \"+\" stands alone in its level")
		}
	}
	return nil
}

// matches reports whether a topic, split into its levels, is one that the
// filter's levels ask for. Wildcards in the first level do not match topics
// that begin with "$" (MQTT 3.1.1, 4.7.2).
func matches(filter, topic []string) bool {
	if strings.HasPrefix(topic[0], "$") && (filter[0] == "+" || filter[0] == "#") {
		return false
	}
	for i, level := range filter {
		if level == "#" {
			return true // also the level above: "a/#" matches "a"
		}
		if i >= len(topic) || level != "+" && level != topic[i] {
			return false
		}
	}
	return len(filter) == len(topic)
}
