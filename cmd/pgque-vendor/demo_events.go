package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

// demoEvents are what is sent. The handler's channel for the second is away at the
// first attempt.
var demoEvents = []struct{ kind, payload, handled string }{
	{"ticket.welcome", `{"email": "ann@example.org"}`, "sent: ticket.welcome, attempt 1:"},
	{"ticket.sla_breached", `{"ticket": 7}`, "sent: ticket.sla_breached, attempt 2:"},
	{"report.weekly_ready", `{"week": 12}`, "sent: report.weekly_ready, attempt 1:"},
}

// The handlers, for systems with a POSIX shell and for Windows.
const (
	demoHandler = `#!/bin/sh
if [ "$PGQUE_EVENT_TYPE" = ticket.sla_breached ] && [ "$PGQUE_EVENT_ATTEMPT" = 1 ]; then
  echo "failed: ticket.sla_breached, attempt 1: Slack does not answer" >&2
  exit 1
fi
echo "sent: $PGQUE_EVENT_TYPE, attempt $PGQUE_EVENT_ATTEMPT: $(cat)"
`
	demoHandlerWindows = `@echo off
if not "%PGQUE_EVENT_TYPE%%PGQUE_EVENT_ATTEMPT%"=="ticket.sla_breached1" goto send
echo failed: ticket.sla_breached, attempt 1: Slack does not answer 1>&2
exit /b 1
:send
echo sent: %PGQUE_EVENT_TYPE%, attempt %PGQUE_EVENT_ATTEMPT%:
findstr "^^"
`
)

const demoFailed = "failed: ticket.sla_breached, attempt 1:"

// writeHandler writes the handler, shows it, and returns the command that runs it:
// through its interpreter, since a temporary folder may forbid programs.
func (d *demo) writeHandler() ([]string, error) {
	name, text, command, show := "notify.sh", demoHandler, []string{"sh", "notify.sh"}, "cat"
	if runtime.GOOS == "windows" {
		name, text, command, show = "notify.cmd", strings.ReplaceAll(demoHandlerWindows, "\n", "\r\n"), []string{"cmd", "/c", "notify.cmd"}, "type"
	}
	if err := os.WriteFile(filepath.Join(d.folder, name), []byte(text), 0o755); err != nil {
		return nil, fault.New(fault.Usage, "write the handler: %s", err)
	}
	d.prompt(show + " " + name)
	d.sayf("%s", strings.TrimRight(text, "\n"))
	return command, nil
}

// startTicker starts the ticker, which runs until the demo ends.
func (d *demo) startTicker(ctx context.Context, listen bool) error {
	args := []string{"ticker"}
	if listen {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		args = append(args, "--listen", address)
		d.page = "http://" + address + "/"
	}
	ticker, err := d.background(ctx, "ticker", args...)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, demoLimit, fault.New(fault.Usage, "the ticker did not start within %s", demoLimit))
	defer cancel()
	return ticker.untilSaid(limited, "ticking ")
}

// endTicker ends the ticker, which must end well.
func (d *demo) endTicker() error {
	d.prompt("kill %1")
	return d.inBackground["ticker"].end()
}

// consumeAll runs the consumer until every event is handled, and checks that the
// failure was retried.
func (d *demo) consumeAll(ctx context.Context) error {
	handler, err := d.writeHandler()
	if err != nil {
		return err
	}
	d.consume = append([]string{"consume", demoQueue, demoConsumer, "--"}, handler...)
	consumer, err := d.start(ctx, d.consume...)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, demoLimit,
		fault.New(fault.Usage, "the events were not handled within %s", demoLimit))
	defer cancel()
	if err := d.untilSettled(limited, consumer); err != nil {
		return err
	}
	d.sayf("^C")
	if err := consumer.end(); err != nil {
		return err
	}
	for _, e := range demoEvents {
		if strings.Count(consumer.output(), e.handled) != 1 {
			return fault.New(fault.Usage, "the handler did not say %q once", e.handled)
		}
	}
	if !strings.Contains(consumer.output(), demoFailed) {
		return fault.New(fault.Usage, "the handler did not fail at the first attempt")
	}
	return nil
}

// demoSettled reports whether every event was handled, and the consumer has told
// the database so.
func demoSettled(ctx context.Context, conn *pgx.Conn, output string) (bool, error) {
	for _, e := range demoEvents {
		if !strings.Contains(output, e.handled) {
			return false, nil
		}
	}
	consumers, err := events.Consumers(ctx, conn, demoQueue)
	if err != nil {
		return false, fault.New(fault.SQL, "look at the consumer: %s", err)
	}
	for _, c := range consumers {
		if c.Pending > 0 || c.Batch != 0 || c.Retries > 0 {
			return false, nil
		}
	}
	return true, nil
}

// goOn runs until a signal, with the status page and a consumer.
func (d *demo) goOn(ctx context.Context) error {
	if err := d.checkPage(ctx); err != nil {
		return err
	}
	consumer, err := d.background(ctx, "consume", d.consume...)
	if err != nil {
		return err
	}
	ticker := d.inBackground["ticker"]
	d.sayf("\nIt goes on until Ctrl-C. The status page: %s\nIn another terminal:", d.page)
	d.sayf("  cd %s", shellQuote(d.folder))
	if _, err := exec.LookPath("pgque-vendor"); err != nil {
		d.sayf("  alias pgque-vendor=%s", shellQuote(d.program))
	}
	d.sayf("  %s", exportLine(d.exported))
	d.sayf("  pgque-vendor publish %s ticket.welcome '{\"email\": \"you@example.org\"}'", demoQueue)
	select {
	case <-ctx.Done():
		d.sayf("\nending: everything is removed")
		return nil
	case <-ticker.ended:
		return fault.New(fault.Usage, "the ticker has ended: %s", ticker.cmd.ProcessState)
	case <-consumer.ended:
		return fault.New(fault.Usage, "the consumer has ended: %s", consumer.cmd.ProcessState)
	}
}

// checkPage fails unless the status page answers.
func (d *demo) checkPage(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(limited, http.MethodGet, d.page, http.NoBody)
	if err != nil {
		return fault.New(fault.Usage, "ask for the status page: %s", err)
	}
	client := &http.Client{Transport: &http.Transport{}} // no proxy: it is on this machine
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fault.New(fault.Usage, "ask for the status page: %s", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fault.New(fault.Usage, "the status page %s answered %s", d.page, response.Status)
	}
	return nil
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress() (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fault.New(fault.Usage, "find a free port: %s", err)
	}
	address := listener.Addr().String()
	return address, errors.Join(listener.Close())
}

// demoGrace is how long a child has to end after it was asked to.
const demoGrace = 10 * time.Second
