// Package e2e holds the promises that the product makes, as tests that run the
// real programs, cut their links, fill their disks and kill them for real. An
// oracle outside the product reads the output stream and counts.
//
// SLUICE_KILLS is how many kills the promises are put to in all (default 40),
// SLUICE_CUT for how long a link stays silent (default 5s), and SLUICE_SEED
// makes a run's random moments those of an earlier one.
package e2e
