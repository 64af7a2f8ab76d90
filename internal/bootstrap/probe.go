package bootstrap

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

//go:embed probe.sql
var probeSQL string

// state is everything that decides what to do, read from the catalogs in one
// query, builtin aside. The names are those of probe.sql.
type state struct {
	ServerVersionNum int    `json:"server_version_num"`
	ServerVersion    string `json:"server_version"`
	InRecovery       bool   `json:"in_recovery"`
	Database         string `json:"database"`
	DatabaseOwner    string `json:"database_owner"`
	Encoding         string `json:"encoding"`
	Template         bool   `json:"template"`

	User        string `json:"user"` // current_user, which ALTER ROLE … SET role may have made another one than the login
	SessionUser string `json:"session_user"`
	Superuser   bool   `json:"superuser"`
	CreateRole  bool   `json:"create_role"`
	GrantCreate bool   `json:"grant_create"` // may grant CREATE on the database
	GrantTemp   bool   `json:"grant_temp"`
	PublicTemp  bool   `json:"public_temp"` // everybody has TEMP on the database

	Schema     *schemaState         `json:"schema"` // nil: there is no schema pgque
	Functions  []function           `json:"functions"`
	Relations  int                  `json:"relations"` // tables, views, sequences and types of the schema
	Tables     []string             `json:"tables"`    // those of PgQue's tables that have to be locked first
	Strays     []object             `json:"strays"`    // relations and types that the schema's owner does not own
	Dependents []dependent          `json:"dependents"`
	Roles      map[string]roleState `json:"roles"`
	Members    []membership         `json:"members"`
	Grants     []grantState         `json:"grants"`

	builtin []string // the names of foreign functions that something built in has too
}

type schemaState struct {
	Owner     string `json:"owner"`
	Comment   string `json:"comment"`
	Extension string `json:"extension"` // the extension that owns the schema or its functions, or ""
}

type object struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"` // pg_class.relkind, or "t" and pg_type.typtype of a domain, an enum or a range
	Owner string `json:"owner"`
}

// dependent is code of other people's that runs when somebody works with PgQue,
// in the words of pg_identify_object: "trigger", "trap on pgque.queue".
type dependent struct {
	Type     string `json:"type"`
	Identity string `json:"identity"`
}

type roleState struct {
	Superuser      bool `json:"superuser"`
	Login          bool `json:"login"`
	Inherit        bool `json:"inherit"`
	CreateRole     bool `json:"create_role"`
	CreateDB       bool `json:"create_db"`
	BypassRLS      bool `json:"bypass_rls"`
	CanSet         bool `json:"can_set"`         // SET ROLE to it is allowed to us
	CanGrant       bool `json:"can_grant"`       // we may grant it to others
	DatabaseCreate bool `json:"database_create"` // has CREATE on this database
	DatabaseTemp   bool `json:"database_temp"`
}

type membership struct {
	Role    string `json:"role"`
	Member  string `json:"member"`
	Grantor string `json:"grantor"`
}

type grantState struct {
	To          string   `json:"to"`
	Role        string   `json:"role"`
	Member      bool     `json:"member"`
	Usage       bool     `json:"usage"` // the privileges are inherited, so that a call works without SET ROLE
	Cycle       bool     `json:"cycle"` // Role is itself a member of To
	SchemaUsage bool     `json:"schema_usage"`
	Denied      []string `json:"denied"` // calls that exist and are refused
	Calls       int      `json:"calls"`  // calls that exist
}

// effective reports whether the grant does what it is for: every call that
// exists works.
func (g grantState) effective() bool {
	return g.SchemaUsage && g.Calls > 0 && len(g.Denied) == 0
}

// isMember reports whether member was granted role directly.
func (s *state) isMember(role, member string) bool {
	return slices.ContainsFunc(s.Members, func(m membership) bool { return m.Role == role && m.Member == member })
}

// exists reports whether a role exists. It knows only the roles it was probed for.
func (s *state) exists(role string) bool { _, ok := s.Roles[role]; return ok }

// version is the body of pgque.version(), or "".
func (s *state) version() string {
	for _, f := range s.Functions {
		if f.Version != "" {
			return f.Version
		}
	}
	return ""
}

// probe reads the state. The transaction must have been opened by begin,
// which fixes search_path. An owner "" and a grant to "" are the login's.
func probe(ctx context.Context, tx pgx.Tx, owner string, grants []Grant) (*state, error) {
	type wanted struct {
		To    string   `json:"to"`
		Role  string   `json:"role"`
		Calls []string `json:"calls"`
	}
	roles, wants := []string{}, []wanted{}
	for _, g := range grants {
		roles = append(roles, g.To)
		wants = append(wants, wanted{g.To, g.Role, callsOf(g.Role)})
	}
	wantsJSON, err := json.Marshal(wants)
	if err != nil {
		return nil, err
	}
	var document []byte
	if err := tx.QueryRow(ctx, probeSQL, owner, roles, string(wantsJSON)).Scan(&document); err != nil {
		return nil, err
	}
	s := new(state)
	if err := json.Unmarshal(document, s); err != nil {
		return nil, fmt.Errorf("read what the database answered: %w", err)
	}
	slices.SortFunc(s.Functions, compareFunctions)
	return s, nil
}
