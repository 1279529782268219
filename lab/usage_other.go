//go:build !linux

package lab

import "errors"

var errNoUsage = errors.New("read usage of a process: only Linux has /proc")

// ReadUsage returns an error on this system.
func ReadUsage(int) (Usage, error) { return Usage{}, errNoUsage }

// ResetPeak returns an error on this system.
func ResetPeak(int) error { return errNoUsage }
