//go:build !linux

package guest

import "errors"

// Init returns an error on this system.
func Init() error { return errors.New("run the guest: a guest has Linux") }
