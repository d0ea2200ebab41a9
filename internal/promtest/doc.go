// Package promtest is the suite with a real Prometheus: it scrapes real servers of the
// built binary under load, evaluates every rule, alert and panel of internal/monitor, and
// answers internal/collect. What numbers should be is computed in the tests, from what
// Prometheus says to questions of their own.
//
// scripts/prometheus/setup.sh installs Prometheus. The directory that it prints has to be
// in the environment as STATOR_PROMETHEUS; without it tests are skipped. Every program that
// a test starts ends with it, even if the test is killed, and listens where it finds a
// port.
package promtest
