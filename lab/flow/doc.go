// Package flow sends as fast as a transport lets it from one host to another
// and counts what arrives: Open connects over TCP, Multipath TCP or SCTP as the
// kernel has them, Product does the same with the real gateway and collector.
// Both are measured alike, by payload bytes in slots of a tenth of a second.
package flow
