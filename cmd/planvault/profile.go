package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
)

// defaultProfile is the name of the profile that no flag needs to name.
const defaultProfile = "default"

// profileNamed returns a profile that must exist.
func (a *app) profileNamed(name string) (connection, error) {
	profiles, err := a.readProfiles()
	if err != nil {
		return connection{}, err
	}
	p, ok := profiles[name]
	if !ok {
		return p, usageError("there is no profile %q in %s; planvault profile list shows them", name, a.profilePath())
	}
	return p, nil
}

// profilePath returns the name of the file of profiles.
func (a *app) profilePath() string {
	if path := a.getenv("PLANVAULT_PROFILES"); path != "" {
		return path
	}
	dir := a.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "" // without a home, there are no profiles
		}
	}
	return filepath.Join(dir, "planvault", "profiles.json")
}

// readProfiles returns the profiles by name. Without a file there are none.
func (a *app) readProfiles() (map[string]connection, error) {
	path := a.profilePath()
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the profiles: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var profiles map[string]connection
	if err := d.Decode(&profiles); err != nil {
		return nil, usageError("the profiles in %s can't be read: %w", path, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // a change would lose it
		return nil, usageError("the profiles in %s can't be read: there is more after them", path)
	}
	return profiles, nil
}

// profileCommand lists and changes profiles.
func (a *app) profileCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "profile",
		Short: "Keep connections under names",
	}
	c.AddCommand(
		&cobra.Command{
			Use:   "list",
			Short: "List the profiles",
			Args:  cobra.NoArgs,
			RunE:  func(*cobra.Command, []string) error { return a.listProfiles() },
		},
		&cobra.Command{
			Use:   "set NAME",
			Short: "Store a profile",
			Args:  cobra.ExactArgs(1),
			RunE:  func(c *cobra.Command, args []string) error { return a.setProfile(c.Context(), args[0]) },
		},
		&cobra.Command{
			Use:               "remove NAME",
			Short:             "Remove a profile",
			Args:              cobra.ExactArgs(1),
			ValidArgsFunction: a.completeProfiles,
			RunE:              func(_ *cobra.Command, args []string) error { return a.removeProfile(args[0]) },
		},
	)
	return c
}

// profileRow is a profile in a list.
type profileRow struct {
	Name    string `json:"name" help:"the profile's name"`
	Account string `json:"account" help:"its account"`
	Prefix  string `json:"prefix,omitempty" help:"its prefix"`
	Login   string `json:"login" help:"how it logs in"`
	Version string `json:"serviceVersion,omitempty" help:"the version of the service that it asks for"`
}

func (a *app) listProfiles() error {
	profiles, err := a.readProfiles()
	if err != nil {
		return err
	}
	var rows []profileRow
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		rows = append(rows, profileRow{name, p.account(), p.Prefix, p.login(), p.ServiceVersion})
	}
	err = printTable(a, rows, func(r profileRow) []string {
		return []string{printable(r.Name, 40), printable(r.Account, 80), printable(r.Prefix, 60), r.Login}
	}, "PROFILE", "ACCOUNT", "PREFIX", "LOGIN")
	if err != nil {
		return err
	}
	a.remark("The profiles are in %s.", a.profilePath())
	return nil
}

// setProfile stores what flags and environment say as a profile.
func (a *app) setProfile(ctx context.Context, name string) error {
	if name == "" || printable(name, 0) != name {
		return usageError("%q can't be the name of a profile", name)
	}
	c := a.connection
	if !c.hasAccount() {
		c = c.fill(a.environment(c))
	}
	if !c.hasAccount() {
		return usageError("profile set: no account: give --endpoint or --connection-string")
	}
	if c.Endpoint != "" && c.ConnectionString != "" {
		return usageError("profile set: --endpoint and --connection-string exclude each other")
	}
	if c.Prefix != "" { // a profile may be of an account alone
		v, _, err := c.dial(ctx, &a.outage, nil, a.options)
		if err != nil {
			return err
		}
		_ = v.Close(ctx)
	}
	return a.changeProfiles(func(profiles map[string]connection) error {
		profiles[name] = c
		return nil
	})
}

func (a *app) removeProfile(name string) error {
	return a.changeProfiles(func(profiles map[string]connection) error {
		if _, ok := profiles[name]; !ok {
			return &exitError{exitFound, fmt.Errorf("there is no profile %q in %s", name, a.profilePath())}
		}
		delete(profiles, name)
		return nil
	})
}

// changeProfiles changes the file of profiles. Whoever reads it finds all of the old one or all of the new one.
func (a *app) changeProfiles(change func(map[string]connection) error) error {
	profiles, err := a.readProfiles()
	if err != nil {
		return err
	}
	if profiles == nil {
		profiles = map[string]connection{}
	}
	if err := change(profiles); err != nil {
		return err
	}
	text, err := json.MarshalIndent(profiles, "", "  ")
	if err != nil {
		return err
	}
	path := a.profilePath()
	if path == "" {
		return errors.New("write the profiles: there is no home folder; PLANVAULT_PROFILES names a file")
	}
	err = os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = replaceFile(path, 0o600, func(w io.Writer) error {
			_, err := w.Write(append(text, '\n'))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("write the profiles: %w", err)
	}
	return nil
}
