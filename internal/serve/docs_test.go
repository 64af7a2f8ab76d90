package serve

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// fullMetrics are the metrics of a process that has seen everything once.
func fullMetrics(t testing.TB) *Metrics {
	t.Helper()
	m := NewMetrics("v1", func() (string, error) { return "ticking", nil }, func() (float64, float64) { return 1, 2 })
	m.Consumes("q", "c")
	for _, o := range []events.Observation{
		events.Ticked{Queue: "q", Tick: 1}, events.Retried{Events: 2}, events.TickerFailed{Action: "tick"},
		events.Leased{Queue: "q", Consumer: "c", Active: true},
		events.Handled{Queue: "q", Consumer: "c", Outcome: events.OutcomeDone, Duration: time.Second},
		events.Settled{Queue: "q", Consumer: "c", Events: 5, Retried: 1, Dead: 1, HandedBack: 1, Duration: time.Second},
		events.Settled{Queue: "q", Consumer: "c", Stale: true},
		events.ConsumerFailed{Queue: "q", Consumer: "c", Action: "settle"},
		events.ConsumerFailed{Queue: "q", Consumer: "c", Action: "consume"},
	} {
		m.Observe(o)
	}
	m.Show(Look{
		At: time.Now(), Seen: time.Now(), Took: time.Second,
		Queues:    []events.QueueInfo{{Name: "q", LastTick: time.Now(), TickAge: 3 * time.Second, Sent: 100, NewEvents: 10, DeadLetters: 7}},
		Consumers: []events.ConsumerInfo{{Queue: "q", Name: "c", Lag: 4 * time.Second, Pending: 9, DeadLetters: -1}},
		Findings:  []events.Finding{{Code: events.CodeNoTick, Severity: events.Critical}, {Code: events.CodeNoTick, Severity: events.Critical}},
	})
	return m
}

var metricName = regexp.MustCompile(`\bpgque_[a-z_]+[a-z]\b`)

// series are all names that a query may ask for, and families those of the metrics.
func exported(t *testing.T) (series, families []string) {
	t.Helper()
	// All of the consumer's are told where the login may see them.
	m := fullMetrics(t)
	look := *m.database.look.Load()
	look.Consumers = []events.ConsumerInfo{{Queue: "q", Name: "c"}}
	m.Show(look)
	found, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if !strings.HasPrefix(f.GetName(), "pgque_") {
			continue
		}
		families = append(families, f.GetName())
		series = append(series, f.GetName())
		if f.GetMetric()[0].GetHistogram() != nil {
			series = append(series, f.GetName()+"_bucket", f.GetName()+"_sum", f.GetName()+"_count")
		}
	}
	return series, families
}

// The dashboard, the alerts and the document name metrics that exist; the document
// names all.
func TestDocumentedMetricsExist(t *testing.T) {
	t.Parallel()
	series, families := exported(t)
	for _, file := range []string{"monitoring.md", "grafana/dashboard.json", "prometheus/rules.yml", "prometheus/rules_test.yml"} {
		text, err := os.ReadFile(filepath.Join("../../docs", file))
		if err != nil {
			t.Fatal(err)
		}
		named := metricName.FindAllString(string(text), -1)
		if len(named) < 5 {
			t.Errorf("docs/%s names %d metrics", file, len(named))
		}
		for _, name := range named {
			if !slices.Contains(series, name) {
				t.Errorf("docs/%s names %s, which does not exist", file, name)
			}
		}
		if file == "monitoring.md" {
			for _, name := range families {
				if !slices.Contains(named, name) {
					t.Errorf("docs/%s does not name %s", file, name)
				}
			}
		}
	}
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID, Title string
		Panels     []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ X, Y, W, H int }
			Targets                  []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID == "" || dashboard.Title == "" || len(dashboard.Panels) < 20 {
		t.Errorf("uid %q, title %q, %d panels", dashboard.UID, dashboard.Title, len(dashboard.Panels))
	}
	ids, places := map[int]bool{}, map[[2]int]bool{}
	for _, p := range dashboard.Panels {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if places[[2]int{x, y}] || x >= 24 {
					t.Errorf("panel %q is on another or out of the grid", p.Title)
				}
				places[[2]int{x, y}] = true
			}
		}
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: its number is used twice, or it has no title", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("panel %q has no target or no description", p.Title)
		}
		for _, target := range p.Targets {
			if !metricName.MatchString(target.Expr) {
				t.Errorf("panel %q asks for no metric of ours: %s", p.Title, target.Expr)
			}
		}
	}
}

// promtool runs Prometheus' own checker. Without it the test is skipped, or fails
// when CI=true and PGQUE_PROMTOOL=required.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") == "true" && os.Getenv("PGQUE_PROMTOOL") == "required" {
			t.Fatal("no promtool for this test")
		}
		t.Skip("no promtool for this test")
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = "../../docs/prometheus"
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolRules(t *testing.T) {
	t.Parallel()
	promtool(t, "", "check", "rules", "rules.yml")
	promtool(t, "", "test", "rules", "rules_test.yml")
}

// Names and texts of the metrics are as Prometheus asks for.
func TestPromtoolMetrics(t *testing.T) {
	t.Parallel()
	text, err := fullMetrics(t).render()
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, string(text), "check", "metrics")
}

// The queries of the dashboard are PromQL: promtool reads them as rules.
func TestPromtoolDashboard(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		t.Fatal(err)
	}
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			expr, err := json.Marshal(strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
			if err != nil {
				t.Fatal(err)
			}
			rules += "  - { record: a:b, expr: " + string(expr) + " }\n"
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "", "check", "rules", "--lint=none", file)
}
