// Package settings reads what a program needs from its environment.
package settings

import (
	"fmt"
	"os"
	"strings"
)

// Required gives the values of environment variables, in their order. The error
// names all that are missing, and no value.
func Required(names ...string) ([]string, error) {
	values := make([]string, len(names))
	var missing []string
	for i, name := range names {
		if values[i] = os.Getenv(name); values[i] == "" {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("set %s", strings.Join(missing, ", "))
	}
	return values, nil
}
