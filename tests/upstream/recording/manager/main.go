// Prints, as JSON, what kube-controller-manager knows and none of its pages shows whole: its feature gates in all versions, its
// controllers, which flag sets which field of its configuration, and the value of each flag when it is started with the
// arguments given.
package main

import (
	"encoding/json"
	"log"
	"os"
	"sort"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	_ "k8s.io/component-base/logs/json/register" // has flags, as in the program
	configv1alpha1 "k8s.io/kube-controller-manager/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	conversion "k8s.io/kubernetes/pkg/controller/apis/config/v1alpha1"
)

// gate is a row of the table: a gate from one version on.
type gate struct {
	Name             string
	From             string
	Stage            string
	Default          bool
	Locked           bool
	MinCompatibility string
	Needs            []string
}

type controller struct {
	Name     string
	Disabled bool
	Aliases  []string
	Gates    []featuregate.Feature
}

// field is what a flag changes in the configuration: before and after, as JSON.
type field struct {
	Flag   string
	Before json.RawMessage
	After  json.RawMessage
}

func gates() (rows []gate) {
	known := utilfeature.DefaultMutableFeatureGate.GetAllVersioned()
	needs := utilfeature.DefaultMutableFeatureGate.Dependencies()
	for name, specs := range known {
		var needed []string
		for _, other := range needs[name] {
			needed = append(needed, string(other))
		}
		for _, spec := range specs {
			row := gate{
				Name: string(name), From: spec.Version.String(), Stage: string(spec.PreRelease),
				Default: spec.Default, Locked: spec.LockToDefault, Needs: needed,
			}
			if spec.MinCompatibilityVersion != nil {
				row.MinCompatibility = spec.MinCompatibilityVersion.String()
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func controllers() (rows []controller) {
	for _, known := range app.NewControllerDescriptors() {
		rows = append(rows, controller{
			Name: known.Name(), Disabled: known.IsDisabledByDefault(),
			Aliases: known.GetAliases(), Gates: known.GetRequiredFeatureGates(),
		})
	}
	sort.Slice(rows, func(a, b int) bool { return rows[a].Name < rows[b].Name })
	return rows
}

// configuration returns the configuration that the options make. What ApplyTo fills in after the configuration may fail.
func configuration(given *options.KubeControllerManagerOptions) json.RawMessage {
	var filled config.Config
	_ = given.ApplyTo(&filled, app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases())
	var shown configv1alpha1.KubeControllerManagerConfiguration
	err := conversion.Convert_config_KubeControllerManagerConfiguration_To_v1alpha1_KubeControllerManagerConfiguration(
		&filled.ComponentConfig, &shown, nil)
	if err != nil {
		log.Fatal(err)
	}
	text, err := json.Marshal(shown)
	if err != nil {
		log.Fatal(err)
	}
	return text
}

// fields sets one flag after the other to a value that differs from its default.
func fields() (rows []field) {
	given, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		log.Fatal(err)
	}
	sets := given.Flags(app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases())
	others := map[string]string{
		"bool": "true", "duration": "7s", "float32": "0.75", "float64": "0.75", "int": "7", "int32": "7", "int64": "7",
		"string": "other",
	}
	for _, section := range sets.Order {
		sets.FlagSets[section].VisitAll(func(flag *pflag.Flag) {
			other, ok := others[flag.Value.Type()]
			if !ok {
				return
			}
			if flag.DefValue == "true" {
				other = "false"
			}
			before := configuration(given)
			if flag.Value.Set(other) != nil {
				return
			}
			after := configuration(given)
			if err := flag.Value.Set(flag.DefValue); err != nil {
				log.Fatal(flag.Name, ": ", err)
			}
			name := string(cliflag.WordSepNormalizeFunc(nil, flag.Name))
			rows = append(rows, field{name, before, after})
		})
	}
	return rows
}

// flagValues returns the value of each flag of the program that was started with some.
func flagValues(arguments []string) (rows [][2]string) {
	command := app.NewControllerManagerCommand()
	command.SetGlobalNormalizationFunc(cliflag.WordSepNormalizeFunc)
	if err := command.ParseFlags(arguments); err != nil {
		log.Fatal(err)
	}
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		rows = append(rows, [2]string{flag.Name, flag.Value.String()})
	})
	return rows
}

func main() {
	values := flagValues(os.Args[1:])
	known := map[string]any{"gates": gates(), "controllers": controllers(), "flags": values, "fields": fields()}
	if err := json.NewEncoder(os.Stdout).Encode(known); err != nil {
		log.Fatal(err)
	}
}
