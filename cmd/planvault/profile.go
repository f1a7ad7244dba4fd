package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	return profiles, nil
}
