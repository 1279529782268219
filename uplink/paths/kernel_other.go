//go:build !linux

package paths

import "errors"

var errNotLinux = errors.New("routing by uplink needs Linux")

func openKernel(Options) (kernel, error) { return nil, errNotLinux }

func bind(uintptr, string, uint32) error { return errNotLinux }
