package config

import (
	"fmt"
	"time"
)

// Duration is a time span, written as "20ms", "15s", "1m30s" or "24h".
type Duration time.Duration

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("not a time span")
	}
	*d = Duration(v)
	return nil
}

// remedy says how to write one.
func (Duration) remedy() string {
	return `write a number with ms, s, m or h, such as "20ms" or "1m30s"`
}

func (d Duration) String() string { return time.Duration(d).String() }
