package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/fault"
)

// healthLimit is for an answer from the same machine. It stays below the time
// that container engines give a health check.
const healthLimit = 3 * time.Second

func newHealthCommand(env *environment) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the ticker or consume of this container whether it is well",
		Long: `Ask /healthz at the address that a ticker or consume listens on, write the answer
to stdout, and exit 1 if it is not well or does not answer. For the health checks
of containers, whose images have no curl; the image's HEALTHCHECK is this command.

Set PGQUE_VENDOR_LISTEN for the container instead of typing --listen, so that both
processes see it. With neither, nothing is asked, and the exit code is 0: that the
process runs is all there is to know of it.`,
		Example: `  pgque-vendor health --listen 127.0.0.1:8080`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runHealth(cmd.Context(), env, listen) },
	}
	cmd.Flags().StringVar(&listen, "listen", "", "the `ADDR` that was given to ticker or consume")
	return cmd
}

func runHealth(ctx context.Context, env *environment, listen string) error {
	if listen == "" {
		env.sayf("no --listen and no PGQUE_VENDOR_LISTEN: nothing was asked")
		return nil
	}
	url, err := healthURL(listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fault.New(fault.Usage, "--listen is %q: %s", listen, err)
	}
	// No proxy, and no redirect: the answer is to come from this very address.
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return fault.New(fault.Finding, "not well: %s", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096)) // engines keep that much of it
	if err != nil {
		return fault.New(fault.Finding, "not well: read the answer of %s: %s", url, err)
	}
	fmt.Fprintln(env.stdout, printable(strings.TrimSpace(string(body))))
	if response.StatusCode != http.StatusOK {
		return fault.New(fault.Finding, "not well: %s answers %s", url, response.Status)
	}
	return nil
}

// healthURL makes the address that a server listens on one that can be asked:
// who listens everywhere is asked on loopback.
func healthURL(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "" || port == "0" {
		return "", fault.New(fault.Usage, "--listen is %q: it takes HOST:PORT or :PORT", listen)
	}
	switch ip := net.ParseIP(host); {
	case host == "", ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/healthz", nil
}
