package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

type consumeOptions struct {
	database   databaseFlags
	listen     listenFlags
	workers    int
	limit      time.Duration
	grace      time.Duration
	retryAfter time.Duration
	stream     bool
	print      bool
	types      []string
	other      string

	queue    string
	consumer string
	command  []string // COMMAND and its arguments
	path     string   // where COMMAND was found
}

func newConsumeCommand(env *environment) *cobra.Command {
	var o consumeOptions
	cmd := &cobra.Command{
		Use: "consume QUEUE CONSUMER -- COMMAND [ARG …]\n" +
			"  pgque-vendor consume QUEUE CONSUMER --stream -- COMMAND [ARG …]\n" +
			"  pgque-vendor consume QUEUE CONSUMER --print",
		Short: "Run a command for each event, or print events",
		Long: `Subscribe CONSUMER to QUEUE and handle its events until SIGINT or SIGTERM. One
process at a time is active for a consumer's name; others stand by and take over
within seconds. The login needs pgque_reader, or better pgque_admin.

COMMAND runs once for each event. Its stdin is the payload; PGQUE_EVENT_ID, _TYPE,
_ATTEMPT, _TIME, _QUEUE, _CONSUMER, _HEADERS (a JSON object) and, where the event has
one, _IDEMPOTENCY_KEY are in its environment. Removed from it are names that begin
with PG, DATABASE_URL or PGQUE_VENDOR_, and GH_TOKEN and GITHUB_TOKEN. Its stdout and stderr
are passed on in whole lines. How it ends decides:

  0              the event is done
  65             dead letter at once
  75             again after --retry-after, without changing that pause
  anything else  again after 1 s, 4 s, 16 s, … up to 1 h, as for a signal and for
                 the time limit; after the queue's max_retries a dead letter

The last lines of its stderr become the dead letter's reason. A COMMAND that cannot
be started ends consume with code 2: events are not blamed for it and wait, except
that one too large for an environment fails by itself.

An event is handled at least once: after a crash it comes again, perhaps after it
was done. COMMAND has a process group of its own, which gets SIGTERM and 2 seconds
later SIGKILL when --limit or --grace is over, when another process took the
consumer over, or at a second signal. On Linux COMMAND is killed when consume dies;
on other systems, and what COMMAND itself started in any, may outlive it. Windows has
no SIGTERM: COMMAND alone is ended there.

The first signal lets running COMMANDs finish within --grace, and exits 0. --grace
exceeded, or a second signal, exits 130 or 143, and what was not finished comes again.

--stream starts one COMMAND for each worker and keeps it. An event is a line on its
stdin, one at a time; the answer is a line on its stdout, which holds nothing else:

  {"id":7,"type":"t","payload":{…},"headers":{…},"time":"…","attempt":1,"queue":"q","consumer":"c"}
  {"id":7,"outcome":"done"}

"outcome" is done, retry, dead or skip; "reason" is a text; "retry_after" is seconds
to wait, with retry. A process that ends before it answered, that answers anything
else, or that takes longer than --limit fails this event and is started anew, after a
growing pause. It should end when its stdin does. A payload that is no JSON is null,
and its text in "payload_text".

--print writes events as such lines. An event is acked only after its line was written.`,
		Example: `  pgque-vendor consume tickets mailer -- ./send-mail.sh
  pgque-vendor consume tickets mailer --workers 4 --type ticket.welcome -- ./send-mail.sh
  pgque-vendor consume tickets stats --stream -- python3 stats.py
  pgque-vendor consume tickets audit --print | jq .payload`,
		Args: cobra.ArbitraryArgs, // checked with the flags, some of which may come from the environment
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.arguments(args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			if env.typed["other"] != nil && len(o.types) == 0 {
				return fault.New(fault.Usage, "--other goes with --type: without one all events are taken")
			}
			return o.run(cmd.Context(), env)
		},
	}
	o.database.register(cmd)
	o.listen.register(cmd)
	flags := cmd.Flags()
	flags.IntVar(&o.workers, "workers", 1, "handle this many events at once; with one they run in order, retries aside")
	flags.DurationVar(&o.limit, "limit", 5*time.Minute, "end a COMMAND that takes longer for an event")
	flags.DurationVar(&o.grace, "grace", 20*time.Second, "after a signal let running COMMANDs finish for this long")
	flags.DurationVar(&o.retryAfter, "retry-after", time.Minute, "the pause after exit code 75; PgQue works in whole seconds")
	flags.BoolVar(&o.stream, "stream", false, "keep one COMMAND per worker and talk to it in lines of JSON")
	flags.BoolVar(&o.print, "print", false, "write events to stdout as lines of JSON, instead of a COMMAND")
	flags.StringArrayVar(&o.types, "type", nil, "take only events of this type; repeatable (default: all)")
	o.other = "skip"
	flags.Var(choice{&o.other, []string{"skip", "retry", "dead"}}, "other", "with --type, what becomes of other types: skip (ack), retry or dead")
	return cmd
}

// arguments takes QUEUE CONSUMER -- COMMAND apart; dash is how many stand before
// the first "--", or -1. The "--" is asked for, since flags of COMMAND would be ours
// without it. Names that begin with "-" stand behind a "--" of their own.
func (o *consumeOptions) arguments(args []string, dash int) error {
	names := args
	switch {
	case dash >= 0 && dash < 2 && len(args) == 2 && o.print:
	case dash >= 0 && dash < 2 && len(args) > 2 && args[2] == "--":
		names, o.command = args[:2], args[3:]
	case dash >= 0:
		names, o.command = args[:dash], args[dash:]
	}
	switch {
	case len(names) > 2 && dash < 0:
		return fault.New(fault.Usage, "consume takes QUEUE CONSUMER, then -- and the COMMAND").
			Hint("pgque-vendor consume %s %s -- %s", shellQuote(names[0]), shellQuote(names[1]), shellQuote(names[2]))
	case len(names) != 2:
		return fault.New(fault.Usage, "consume takes QUEUE CONSUMER before the --, got %d arguments", len(names)).Hint("pgque-vendor consume --help")
	case o.print && len(o.command) > 0:
		return fault.New(fault.Usage, "--print and a COMMAND exclude each other")
	case !o.print && len(o.command) == 0:
		return fault.New(fault.Usage, "consume needs a COMMAND after --, or --print").Hint("pgque-vendor consume --help")
	}
	o.queue, o.consumer = names[0], names[1]
	return nil
}

// longest bounds times that are added up: near the largest duration the sum would be
// negative, and a default would take its place.
const longest = 365 * 24 * time.Hour

func (o *consumeOptions) validate() error {
	switch {
	case o.workers < 1 || o.workers > 1000:
		return fault.New(fault.Usage, "--workers is %d: it takes 1 to 1000", o.workers)
	case o.limit <= 0 || o.limit > longest:
		return fault.New(fault.Usage, "--limit is %s: it takes more than 0, and at most %s", o.limit, longest)
	case o.grace < 0 || o.grace > longest:
		return fault.New(fault.Usage, "--grace is %s: it takes 0 to %s", o.grace, longest)
	case o.retryAfter < 0:
		return fault.New(fault.Usage, "--retry-after is %s: it takes 0 or more", o.retryAfter)
	case o.print && o.stream:
		return fault.New(fault.Usage, "--print and --stream exclude each other")
	case o.print && o.workers > 1:
		return fault.New(fault.Usage, "--print and --workers exclude each other: lines are written in order")
	}
	for _, t := range o.types {
		if t == "" {
			return fault.New(fault.Usage, "--type is empty")
		}
	}
	return nil
}

// otherPolicies are the values of --other.
var otherPolicies = map[string]events.UnhandledPolicy{
	"skip": events.UnhandledSkip, "retry": events.UnhandledRetry, "dead": events.UnhandledDead,
}

// lookUp finds COMMAND, so that a wrong name ends consume before it takes an event.
func (o *consumeOptions) lookUp() error {
	if o.print {
		return nil
	}
	path, err := exec.LookPath(o.command[0])
	if errors.Is(err, exec.ErrDot) {
		return fault.New(fault.Usage, "%q is in the working directory, not in PATH", o.command[0]).Hint("name it as %q", "./"+o.command[0])
	}
	if err != nil {
		return fault.New(fault.Usage, "COMMAND %q cannot be run: %w", o.command[0], unwrapExec(err)).Hint("%s", o.insteadOf(o.command[0]))
	}
	o.path = path
	return nil
}

// insteadOf says how to name a COMMAND that was not found, or cannot be run.
func (o *consumeOptions) insteadOf(name string) string {
	again := fmt.Sprintf("pgque-vendor consume %s %s -- ", shellQuote(o.queue), shellQuote(o.consumer))
	isPath := strings.ContainsAny(name, `/\`)
	file, err := os.Stat(name)
	switch {
	case strings.ContainsAny(name, " \t\n|&;<>$"):
		return again + "sh -c " + shellQuote(name)
	case err == nil && file.IsDir():
		return "it is a directory: name the program in it"
	case err == nil && isPath:
		return "chmod +x " + shellQuote(name)
	case err == nil:
		return again + shellQuote("./"+name)
	case isPath:
		return "the path is looked up from the working directory, unless it begins with /"
	}
	return "name a program that is in PATH, or one by its path: ./" + name
}

// unwrapExec leaves out the name, which our own text has already.
func unwrapExec(err error) error {
	var named *exec.Error
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

func (o *consumeOptions) run(ctx context.Context, env *environment) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := o.lookUp(); err != nil {
		return err
	}
	if o.print && closedStdout(env.stream()) {
		return fault.New(fault.Usage, "stdout is closed, or the null device open for reading too: events would be acked and lost").
			Hint("to lose them on purpose: pgque-vendor consume %s %s --print > /dev/null", shellQuote(o.queue), shellQuote(o.consumer))
	}
	shown, err := o.listen.start(ctx, env, fmt.Sprintf("consume %s %s", o.queue, o.consumer))
	if err != nil {
		return err
	}
	defer shown.stop()
	pool, settings, err := o.database.pool(ctx, env, "pgque-vendor consume")
	if endedBySignal(ctx) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closePool(pool)
	c := newConsumption(ctx, env, o, shown)
	shown.watch(pool, settings.Database(), events.HealthConfig{}, shown.consumerReady(o.queue, o.consumer))
	o.announce(env)
	err = c.run(pool)
	env.sayf("consume ended: %s", c.counts.String())
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	var known *fault.Error
	var interrupted errInterrupted
	if errors.As(err, &known) || errors.As(err, &interrupted) {
		return err
	}
	if errors.Is(err, events.ErrPermission) {
		login := shellQuote(settings.User())
		return fault.New(fault.Policy, "%w", err).Hint("pgque-vendor bootstrap --grant-reader %s", login).
			Hint("pgque-vendor bootstrap --grant-admin %s  # better: see consume --help", login)
	}
	return eventsFault(err, settings, o.queue)
}

// announce says what will be done with which events.
func (o *consumeOptions) announce(env *environment) {
	taken := "all events"
	if len(o.types) > 0 {
		fate := map[string]string{"skip": "acked as skipped", "retry": "retried, and dead letters in the end", "dead": "dead letters at once"}
		taken = fmt.Sprintf("events of type %s; those of other types are %s", strings.Join(o.types, ", "), fate[o.other])
	}
	env.sayf("consuming %q as %q: %s", o.queue, o.consumer, taken)
}
