// Package bench measures the event library beside its floor, in one run on one
// server: what PostgreSQL itself takes for the same work. bench/run.sh runs it;
// docs/benchmarks.md has the results.
package bench
