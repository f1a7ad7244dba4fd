// Package deploy_test checks the files beside it.
package deploy_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
)

// The types of Prometheus's operator, KEDA and Kustomize are not in k8s.io/api. These have the fields that the files use, from
// the documentation.
type (
	serviceMonitor struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Selector  metav1.LabelSelector
			Endpoints []struct{ Port, Path, Interval, ScrapeTimeout string }
		}
	}
	scaledObject struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			ScaleTargetRef                                                    struct{ Name string }
			MinReplicaCount, MaxReplicaCount, PollingInterval, CooldownPeriod int32
			Fallback                                                          struct{ FailureThreshold, Replicas int32 }
			Triggers                                                          []struct {
				Type     string
				Metadata struct{ ServerAddress, Query, Threshold, IgnoreNullValues string }
			}
		}
	}
	kustomization struct {
		metav1.TypeMeta
		Namespace          string
		Resources          []string
		Images             []struct{ Name, NewName, NewTag string }
		ConfigMapGenerator []struct {
			Name     string
			Literals []string
		}
	}
)

// manifests are the objects of the files.
type manifests struct {
	kustomization kustomization
	accounts      map[string]corev1.ServiceAccount
	deployments   map[string]appsv1.Deployment
	services      []corev1.Service
	budgets       []policyv1.PodDisruptionBudget
	policies      []networkingv1.NetworkPolicy
	monitors      []serviceMonitor
	jobs          []batchv1.CronJob
	scaled        []scaledObject
}

// read decodes the files strictly: a field that its type lacks is an error.
func read(t *testing.T) manifests {
	t.Helper()
	m := manifests{accounts: map[string]corev1.ServiceAccount{}, deployments: map[string]appsv1.Deployment{}}
	files, err := filepath.Glob("kubernetes/*.yaml")
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, doc := range strings.Split(string(text), "\n---\n") {
			var what metav1.TypeMeta
			must(t, yaml.Unmarshal([]byte(doc), &what))
			switch what.APIVersion + " " + what.Kind {
			case "kustomize.config.k8s.io/v1beta1 Kustomization":
				m.kustomization = decode[kustomization](t, file, doc)
			case "v1 ServiceAccount":
				a := decode[corev1.ServiceAccount](t, file, doc)
				m.accounts[a.Name] = a
			case "apps/v1 Deployment":
				d := decode[appsv1.Deployment](t, file, doc)
				m.deployments[d.Name] = d
			case "v1 Service":
				m.services = append(m.services, decode[corev1.Service](t, file, doc))
			case "policy/v1 PodDisruptionBudget":
				m.budgets = append(m.budgets, decode[policyv1.PodDisruptionBudget](t, file, doc))
			case "networking.k8s.io/v1 NetworkPolicy":
				m.policies = append(m.policies, decode[networkingv1.NetworkPolicy](t, file, doc))
			case "monitoring.coreos.com/v1 ServiceMonitor":
				m.monitors = append(m.monitors, decode[serviceMonitor](t, file, doc))
			case "batch/v1 CronJob":
				m.jobs = append(m.jobs, decode[batchv1.CronJob](t, file, doc))
			case "keda.sh/v1alpha1 ScaledObject":
				m.scaled = append(m.scaled, decode[scaledObject](t, file, doc))
			default:
				t.Errorf("%s has a %s of %s", file, what.Kind, what.APIVersion)
			}
		}
	}
	for _, file := range files {
		if base := filepath.Base(file); base != "kustomization.yaml" && !slices.Contains(m.kustomization.Resources, base) {
			t.Errorf("kustomization.yaml lacks %s", base)
		}
	}
	return m
}

func decode[T any](t *testing.T, file, doc string) (v T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(doc), &v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return v
}

// pods returns the pods of all deployments and jobs, by name.
func (m manifests) pods() map[string]corev1.PodTemplateSpec {
	pods := map[string]corev1.PodTemplateSpec{}
	for name, d := range m.deployments {
		pods[name] = d.Spec.Template
	}
	for _, j := range m.jobs {
		pods[j.Name] = j.Spec.JobTemplate.Spec.Template
	}
	return pods
}

// TestPods looks at what every pod must have: an identity and few rights, the image of the kustomization, and its settings.
func TestPods(t *testing.T) {
	m := read(t)
	pods := m.pods()
	if len(pods) != 3 {
		t.Fatalf("there are %d pods", len(pods))
	}
	for name, p := range pods {
		c := p.Spec.Containers[0]
		account := m.accounts[p.Spec.ServiceAccountName]
		for what, ok := range map[string]bool{
			"one container":         len(p.Spec.Containers) == 1,
			"an identity":           account.Annotations["azure.workload.identity/client-id"] != "" && p.Labels["azure.workload.identity/use"] == "true",
			"no other token":        p.Spec.AutomountServiceAccountToken != nil && !*p.Spec.AutomountServiceAccountToken,
			"no root":               *p.Spec.SecurityContext.RunAsNonRoot,
			"a seccomp profile":     p.Spec.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
			"no writable root":      *c.SecurityContext.ReadOnlyRootFilesystem,
			"no more rights":        !*c.SecurityContext.AllowPrivilegeEscalation,
			"no capabilities":       reflect.DeepEqual(c.SecurityContext.Capabilities, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}),
			"a limit of its memory": !c.Resources.Limits.Memory().IsZero() && c.Resources.Limits.Memory().Cmp(*c.Resources.Requests.Memory()) >= 0,
			"the settings":          len(c.EnvFrom) == 1 && c.EnvFrom[0].ConfigMapRef.Name == m.kustomization.ConfigMapGenerator[0].Name,
			"an image":              slices.ContainsFunc(m.kustomization.Images, func(i struct{ Name, NewName, NewTag string }) bool { return i.Name == c.Image }),
		} {
			if !ok {
				t.Errorf("%s lacks %s", name, what)
			}
		}
	}
}

// TestSelectors looks for the pods that each selector selects, and for the ports.
func TestSelectors(t *testing.T) {
	m := read(t)
	one := func(what string, selector labels.Set) {
		n := 0
		for _, p := range m.pods() {
			if selector.AsSelector().Matches(labels.Set(p.Labels)) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s selects %d kinds of pods", what, n)
		}
	}
	for name, d := range m.deployments {
		one("deployment "+name, d.Spec.Selector.MatchLabels)
	}
	for _, b := range m.budgets {
		one("budget "+b.Name, b.Spec.Selector.MatchLabels)
	}
	for _, p := range m.policies {
		one("policy "+p.Name, p.Spec.PodSelector.MatchLabels)
	}
	for _, s := range m.services {
		one("service "+s.Name, s.Spec.Selector)
		if port := m.deployments[s.Name].Spec.Template.Spec.Containers[0].Ports[0].Name; s.Spec.Ports[0].TargetPort.StrVal != port {
			t.Errorf("service %s leads to port %s", s.Name, s.Spec.Ports[0].TargetPort.StrVal)
		}
	}
	for _, mon := range m.monitors {
		if !slices.ContainsFunc(m.services, func(s corev1.Service) bool {
			return reflect.DeepEqual(s.Labels, mon.Spec.Selector.MatchLabels) && s.Spec.Ports[0].Name == mon.Spec.Endpoints[0].Port
		}) {
			t.Errorf("monitor %s selects no service", mon.Name)
		}
	}
	if len(m.budgets) != 1 || len(m.policies) != 1 || len(m.services) != 2 || len(m.monitors) != 1 {
		t.Errorf("there are %d budgets, %d policies, %d services and %d monitors", len(m.budgets), len(m.policies), len(m.services), len(m.monitors))
	}
}

// storing is the ten seconds for which a supervisor waits longer than engine.Options.Drain.
const storing = 10 * time.Second

// pinging is how long a Ping may take.
const pinging = 10 * time.Second

// TestTimes compares the times and numbers of the nodes with the defaults of engines and fleets.
func TestTimes(t *testing.T) {
	m := read(t)
	d := m.deployments["engine"]
	pod, c := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
	seconds := func(n int64) time.Duration { return time.Duration(n) * time.Second }
	times := func(a, b int32) time.Duration { return seconds(int64(a) * int64(max(b, 3))) } // 3 is the default
	for _, row := range []struct {
		what        string
		is, atLeast time.Duration
	}{
		{"the grace period", seconds(*pod.TerminationGracePeriodSeconds), seconds(c.Lifecycle.PreStop.Sleep.Seconds) + engine.DefaultDrain + storing + time.Second},
		{"the time until a new node is available", seconds(int64(d.Spec.MinReadySeconds)), fleet.DefaultInterval},
		{"the patience of the liveness probe", times(c.LivenessProbe.PeriodSeconds, c.LivenessProbe.FailureThreshold), fleet.DefaultTTL},
		{"the patience of the readiness probe", seconds(int64(c.ReadinessProbe.TimeoutSeconds)), pinging + time.Second},
		{"the patience of the startup probe", seconds(int64(c.StartupProbe.TimeoutSeconds)), pinging + time.Second},
		{"the patience of the web's probe", seconds(int64(m.deployments["web"].Spec.Template.Spec.Containers[0].ReadinessProbe.TimeoutSeconds)), pinging + 5*time.Second},
	} {
		if row.is < row.atLeast {
			t.Errorf("%s is %v, less than %v", row.what, row.is, row.atLeast)
		}
	}
	if d.Spec.Replicas != nil {
		t.Error("the deployment and KEDA both say how many nodes there are")
	}
	if c.LivenessProbe.TCPSocket == nil || c.ReadinessProbe.HTTPGet.Path != "/healthz" {
		t.Error("an outage of the store restarts nodes, or is not seen")
	}
	if most := m.budgets[0].Spec.MaxUnavailable; most.IntVal != 1 || d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntVal != 0 {
		t.Errorf("%v nodes may go at once", most)
	}
	if j := m.jobs[0].Spec; j.ConcurrencyPolicy != batchv1.ForbidConcurrent || *j.JobTemplate.Spec.ActiveDeadlineSeconds > 3600 {
		t.Error("two mirrors may run at once")
	}
}

// TestScaling compares the query with the gauges that planvault web serves, and the numbers with the engine's.
func TestScaling(t *testing.T) {
	m := read(t)
	s := m.scaled[0].Spec
	trigger := s.Triggers[0].Metadata
	if s.ScaleTargetRef.Name != m.deployments["engine"].Name || trigger.Threshold != strconv.Itoa(engine.DefaultPlans) {
		t.Errorf("%+v scales by %s plans, not %d", s.ScaleTargetRef, trigger.Threshold, engine.DefaultPlans)
	}
	if s.MinReplicaCount != 0 || s.Fallback.Replicas < 1 || trigger.IgnoreNullValues != "false" {
		t.Error("nodes go while nobody counts the plans")
	}
	served, err := os.ReadFile("../cmd/planvault/internal/web/metrics.go")
	must(t, err)
	used := regexp.MustCompile(`azblob_\w+`).FindAllString(trigger.Query, -1)
	if len(used) == 0 || slices.ContainsFunc(used, func(gauge string) bool { return !strings.Contains(string(served), strconv.Quote(gauge)) }) {
		t.Errorf("planvault web does not serve all of %q", used)
	}
	settings := m.kustomization.ConfigMapGenerator[0].Literals
	if of := regexp.MustCompile(`db_namespace="(.*?)"`).FindStringSubmatch(trigger.Query); of == nil || !slices.Contains(settings, "PLANVAULT_PREFIX="+of[1]) {
		t.Errorf("%q is not about the vault of %q", trigger.Query, settings)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
