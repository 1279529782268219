package experiment

import "context"

// measures are the kernel's parts by experiment.
func measures() map[string]func(context.Context, *bench) error {
	return map[string]func(context.Context, *bench) error{
		"per":       measurePER,
		"ms-chain":  measureChain,
		"ht-single": measureSingle,
		"ht-multi":  measureMulti,
		"handover":  measureHandover,
		"nat":       measureNAT,
	}
}
