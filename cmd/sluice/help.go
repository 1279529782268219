package main

// What "sluice help NAME" says about each command.
const (
	runText = `Takes readings in, keeps them on disk and carries them to the collector, as
the configuration says, until SIGTERM or SIGINT. What is not delivered then is
delivered after the next start. The log goes to the standard error.

  --config FILE   the configuration; default ` + defaultConfig + `

SIGHUP reads FILE again. Only what changed restarts; connections stay where
they can. A file with a fault is refused whole, the gateway goes on as before,
and the status says why. The gateway's id, its data folder and [store] need a
restart.

A file with a fault at the start ends the program with status 1 and the faults.
`
	statusText = `Asks the running gateway, and writes what comes in, what waits, since when and
where it goes. The first line is the judgement: behind "!" stands what keeps
readings from moving, behind "-" what somebody should look at some time.

` + askText + `
The exit status is 0 if health is ok, 1 if not or if no gateway answers. Only
root, the gateway's user and its group may ask.
`
	pathsText = `Asks the running gateway for its paths, one a line: the state, the loss in the
last slot and the most in the window, the score that paths are compared by
(lower is better), the round trip, bytes, and why it is as it is.

` + askText
	switchesText = `Asks the running gateway when it changed the path or the protocol, from what to
what, with both scores, and why; the last change is the last line. The last
hundred since the start are kept.

` + askText
	askText = `  --config FILE   the gateway's configuration, which names its socket;
                  default ` + defaultConfig + `
  --socket PATH   the socket itself, instead
  --json          write the whole status document, for programs
  --watch         show it again every second, until Ctrl-C
`
	checkConfigText = `Reads a configuration as "sluice run" would, with the certificates and secrets
that it names, and writes every fault as "FILE:LINE: FIELD = VALUE: what is
wrong; what to write instead". The exit status is 0 if there is none, else 1.

Run it before a reload:  sluice check-config FILE && kill -HUP $(pidof sluice)
`
	initConfigText = `Writes every key with its default and an explanation to the standard output:

  sluice init-config > sluice.toml
`
	hashPasswordText = `Asks for a password, or takes the first line of the standard input if that is
no terminal, and writes its hash. Put that as password_hash into a
[[broker.user]]: the configuration then holds no secret.
`
	pushText = `Sends FILE, or the standard input for "-", to a gateway: SenML in JSON or CBOR
(RFC 8428), up to 256 MB; a large one goes in several batches. It keeps trying,
at most a minute apart or as the gateway asks, until everything is on the
gateway's disk. A batch that the gateway can never take ends it with status 1.

  --to URL            the gateway, such as http://gateway:8080
  --node NAME         the name to push under
  --token-file FILE   the file with this node's token, if it has one

Each batch has an id, the same on every try. A file pushed again is stored once.
So is what comes through the standard input if every record says when it was
measured; otherwise it counts as measured when it arrives, and as new.

For https with a certificate of your own authority, name the authority's file in
the environment:  SSL_CERT_FILE=ca.crt sluice push ...

Example:  echo '[{"n":"temperature","u":"Cel","v":21.5}]' |
              sluice push - --to http://gateway:8080 --node barn
`
	storeText = `Looks at a store file, store.db in the data folder, while no gateway runs on it.
Nothing is changed.

  check    read everything; exit status 1 with what is damaged
  stat     how much of what is in it, and since when
  export   write all readings as JSON lines: also from a store that is damaged,
           as far as it can be read
`
	versionText = `Writes the version that the program was built with.
`
)
