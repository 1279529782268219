package config

import _ "embed" // for the examples, which are files so that they can be read as such

//go:embed gateway.example.toml
var gatewayExample string

//go:embed collector.example.toml
var collectorExample string

// GatewayExample is a commented configuration of a gateway.
func GatewayExample() string { return gatewayExample }

// CollectorExample is a commented configuration of a collector.
func CollectorExample() string { return collectorExample }
