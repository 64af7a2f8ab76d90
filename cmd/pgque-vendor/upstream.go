package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/blobcache"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/ghclient"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/gitrepo"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

// Where PgQue lives, and the paths its files have there.
const (
	defaultRepository = "NikolayS/PgQue"
	defaultSQLPath    = "sql/pgque.sql"
	develSQLPath      = "devel/sql/pgque.sql" // pre-releases since v0.3.0-alpha.1 keep the new SQL here
)

// upstream is where tags and bytes come from: GitHub, or a local git
// repository. Both prove what they return: an entry belongs to the commit's
// root tree, and a blob's bytes have the blob's id.
type upstream interface {
	Tags(ctx context.Context) ([]gitobject.Tag, error)
	ResolveTag(ctx context.Context, name string) (gitobject.Tag, error)
	Entries(ctx context.Context, commit gitobject.ID, paths []string) ([]gitobject.Entry, error)
	Blob(ctx context.Context, id gitobject.ID, limit int64) ([]byte, error)
}

// upstreamFlags are the flags of every command that asks upstream.
type upstreamFlags struct {
	repo    string
	apiURL  string
	from    string
	noCache bool
	noToken bool
	timeout time.Duration

	web string // where people look at the repository; known once opened
}

func (f *upstreamFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.repo, "repo", "", "GitHub `OWNER/NAME` (default: SOURCE.json's, else "+defaultRepository+")")
	flags.StringVar(&f.apiURL, "api-url", "", "`URL` of GitHub's API (default: $GITHUB_API_URL, else github.com's)")
	flags.StringVar(&f.from, "from", "", "take everything from a local git repository or .bundle file at `PATH`")
	flags.BoolVar(&f.noCache, "no-cache", false, "neither read nor write the download cache")
	flags.BoolVar(&f.noToken, "no-token", false, "send no token, whatever the environment holds")
	flags.DurationVar(&f.timeout, "timeout", 60*time.Second, "how long all requests together may take")
}

// repository is the repository a command speaks of: --repo, else what is
// vendored, else PgQue's own. GitHub's names know no case, so a --repo that
// differs only in case is no other repository.
func (f *upstreamFlags) repository(src *vendorfile.Source) string {
	switch {
	case src != nil && (f.repo == "" || strings.EqualFold(f.repo, src.Repository)):
		return src.Repository
	case f.repo != "":
		return f.repo
	}
	return defaultRepository
}

// noteRepository tells when the files are not from PgQue's own repository, whose name
// another can look like.
func noteRepository(src *vendorfile.Source) []string {
	if strings.EqualFold(src.Repository, defaultRepository) {
		return nil
	}
	return []string{"vendored from " + src.Repository + ", not from " + defaultRepository}
}

// again are the flags that a hint's command needs to ask the same upstream.
func (f *upstreamFlags) again() string {
	s := ""
	for _, flag := range []struct{ name, value string }{{"repo", f.repo}, {"api-url", f.apiURL}, {"from", f.from}} {
		if flag.value != "" {
			s += " --" + flag.name + " " + shellQuote(flag.value)
		}
	}
	return s
}

// listCommand shows the tags of the same upstream, without the folder's SOURCE.json.
func (f *upstreamFlags) listCommand(src *vendorfile.Source) string {
	command := "pgque-vendor list"
	if repository := f.repository(src); f.repo == "" && repository != defaultRepository {
		command += " --repo " + shellQuote(repository)
	}
	return command + f.again()
}

// open returns the source that the flags name, and what releases it. src is
// what is vendored, or nil.
func (f *upstreamFlags) open(ctx context.Context, env *environment, src *vendorfile.Source) (upstream, func(), error) {
	if f.timeout <= 0 {
		return nil, nil, fault.New(fault.Usage, "--timeout is %s: it must be more than 0", f.timeout)
	}
	if f.from != "" {
		if f.apiURL != "" {
			return nil, nil, fault.New(fault.Usage, "--from and --api-url exclude each other")
		}
		repo, err := gitrepo.Open(ctx, gitrepo.Options{Path: f.from, Env: os.Environ(), Log: env.log})
		if err != nil {
			return nil, nil, err
		}
		return repo, func() { repo.Close() }, nil
	}
	return f.openGitHub(ctx, env, src)
}

func (f *upstreamFlags) openGitHub(ctx context.Context, env *environment, src *vendorfile.Source) (upstream, func(), error) {
	base := f.apiURL
	if base == "" {
		base = env.getenv("GITHUB_API_URL")
	}
	f.web = webOf(base)
	token, tokenSource := "", ""
	if !f.noToken {
		token, tokenSource = findToken(env)
		token = ownToken(env, token, tokenSource, base)
	}
	client, err := ghclient.New(ghclient.Options{
		BaseURL:     base,
		Repository:  f.repository(src),
		Token:       token,
		TokenSource: tokenSource,
		Timeout:     f.timeout,
		UserAgent:   "pgque-vendor/" + version(),
		List:        f.listCommand(src),
		Log:         env.log,
		Notice:      func(s string) { env.warnf("%s", s) },
	})
	if err != nil {
		return nil, nil, err
	}
	if err := f.checkRepositoryID(ctx, client, src); err != nil {
		return nil, nil, err
	}
	cached := &cachedUpstream{Client: client}
	if !f.noCache {
		cached.cache = openCache(env)
	}
	return cached, func() {}, nil
}

// checkRepositoryID costs a request, so it is made only where SOURCE.json
// recorded the id (after a rename): a name that was given up can be taken by
// somebody else, an id can't.
func (f *upstreamFlags) checkRepositoryID(ctx context.Context, client *ghclient.Client, src *vendorfile.Source) error {
	if src == nil || src.RepositoryID == 0 || f.repository(src) != src.Repository {
		return nil
	}
	id, err := client.RepositoryID(ctx)
	if err != nil || id == src.RepositoryID {
		return err
	}
	return fault.New(fault.Integrity, "%q is another repository now: its id is %d, SOURCE.json has %d", src.Repository, id, src.RepositoryID).
		Hint("find out who owns the name now; with the new home of PgQue known: pgque-vendor update TAG --repo OWNER/NAME")
}

// findToken returns the first token that the environment holds, and the name
// of its variable.
func findToken(env *environment) (token, variable string) {
	for _, name := range []string{"PGQUE_VENDOR_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"} {
		if v := strings.TrimSpace(env.getenv(name)); v != "" {
			return v, name
		}
	}
	return "", ""
}

// ownToken keeps a token from a server that it is not for: where GITHUB_API_URL is set,
// as on a runner of GitHub's, GH_TOKEN and GITHUB_TOKEN are that server's.
func ownToken(env *environment, token, variable, base string) string {
	ambient := env.getenv("GITHUB_API_URL")
	if token == "" || variable == "PGQUE_VENDOR_TOKEN" || ambient == "" || hostOf(ambient) == hostOf(base) {
		return token
	}
	env.sayf("note: the token in %s is not sent to %s: it is for GITHUB_API_URL, %s; for another server: PGQUE_VENDOR_TOKEN",
		variable, hostOf(base), hostOf(ambient))
	return ""
}

// hostOf is a server's name and port, in lower case.
func hostOf(apiURL string) string {
	u, err := url.Parse(apiURL)
	if err != nil || u.Host == "" {
		return "a URL without a host"
	}
	return strings.ToLower(strings.TrimSuffix(u.Host, ":443"))
}

// cachedUpstream is GitHub with the download cache in front of its blobs.
type cachedUpstream struct {
	*ghclient.Client
	cache *blobcache.Cache // nil: no cache
}

func (u *cachedUpstream) Blob(ctx context.Context, id gitobject.ID, limit int64) ([]byte, error) {
	if u.cache != nil {
		if data, ok := u.cache.Get(id); ok && int64(len(data)) <= limit {
			return data, nil
		}
	}
	data, err := u.Client.Blob(ctx, id, limit)
	if err == nil && u.cache != nil {
		u.cache.Put(id, data)
	}
	return data, err
}

// openCache returns the cache in the user's cache directory, or nil where the
// machine has no such place: a cache is never a reason to fail.
func openCache(env *environment) *blobcache.Cache {
	dir := cacheDir(env)
	if dir == "" {
		return nil
	}
	return blobcache.New(filepath.Join(dir, "pgque-vendor", "blobs"), env.log)
}

func cacheDir(env *environment) string {
	if dir := env.getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		env.log.Debug("no cache", "reason", err)
		return ""
	}
	return dir
}

// shortID is an object id as people read it.
func shortID[T ~string](id T) string {
	if len(id) <= 12 {
		return string(id)
	}
	return string(id[:12])
}

// thousands writes 271724 as 271,724.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// compareLink is the page that shows what lies between the pinned commit and
// another one.
func compareLink(f upstreamFlags, src *vendorfile.Source, commit string) string {
	if f.from != "" {
		clone, where := "", shellQuote(f.from)
		if info, err := os.Stat(f.from); err == nil && !info.IsDir() { // a bundle
			clone, where = "git clone -q --mirror "+where+" pgque.git && ", "pgque.git"
		}
		return fmt.Sprintf("%sgit -C %s diff %s %s", clone, where, src.Commit, commit)
	}
	return fmt.Sprintf("%s/%s/compare/%s...%s", f.web, src.Repository, src.Commit, commit)
}

// webOf is where people look at what the API serves.
func webOf(apiURL string) string {
	u, err := url.Parse(apiURL)
	if err != nil || u.Host == "" || u.Hostname() == "api.github.com" {
		return "https://github.com"
	}
	return u.Scheme + "://" + strings.TrimPrefix(u.Host, "api.")
}

// repositoryID is the number to record: the one that a rename told, else the one that
// is recorded. When another repository takes the place of one with a number, it is
// asked for its own.
func repositoryID(ctx context.Context, up upstream, src *vendorfile.Source, repository string) (int64, error) {
	client, gitHub := up.(*cachedUpstream)
	if gitHub {
		if _, id, ok := client.Renamed(); ok && id != 0 {
			return id, nil
		}
	}
	switch {
	case src == nil || src.RepositoryID == 0:
		return 0, nil
	case repository == src.Repository:
		return src.RepositoryID, nil
	case gitHub:
		return client.RepositoryID(ctx)
	}
	return 0, nil // a local repository does not know
}
