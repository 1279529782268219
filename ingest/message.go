package ingest

import "sluice/reading"

// Message is one MQTT message as a broker handed it over.
type Message struct {
	Topic    string
	Payload  []byte // the decoder reads it and keeps nothing of it
	Retained bool   // a copy that the broker had kept: it may be old
	At       reading.Time
}
