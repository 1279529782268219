// Package topology builds networks inside this machine: hosts are network
// namespaces, links are pairs of virtual Ethernet devices, and each direction of
// a link can be slowed, delayed, lossy, filtered by protocol, translated by NAT,
// or cut without a word, while programs run on the hosts.
//
// It needs Linux and root. Rate, delay and loss need the kernel's netem, which
// the lab's guest has. The rest works on most machines.
//
// Two rules keep an emulated link true. A queue on the sender's own device holds
// back its sockets, as no radio further on does: put a router between. And a
// queue that limits the rate and loses at once loses before it limits, so that
// what is lost has cost nothing: limit on one hop and lose on the next. Multipath
// is built by both.
package topology
