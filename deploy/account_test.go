package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/storage/armstorage"
)

// template is an ARM template, with the members that account.json uses.
type template struct {
	Schema         string `json:"$schema"`
	ContentVersion string
	Parameters     map[string]struct {
		Type                 string
		DefaultValue         any
		MinLength, MaxLength int
		Metadata             struct{ Description string }
	}
	Variables map[string]string
	Resources []resource
	Outputs   map[string]struct{ Type, Value string }
}

// resource is a resource of a template.
type resource struct {
	Type, APIVersion, Name, Location, Kind, Scope string
	DependsOn                                     []string
	Copy                                          struct{ Name, Count string }
	SKU                                           struct{ Name string }
	Properties                                    json.RawMessage
}

// properties is what the properties of a resource are in the SDK, which is generated from the service's own description of this
// version of the API. An identity has none.
func (r resource) properties() any {
	switch r.Type + " " + r.APIVersion {
	case "Microsoft.Storage/storageAccounts 2024-01-01":
		return new(armstorage.AccountPropertiesCreateParameters)
	case "Microsoft.Storage/storageAccounts/blobServices 2024-01-01":
		return new(armstorage.BlobServicePropertiesProperties)
	case "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials 2024-11-30":
		return new(armmsi.FederatedIdentityCredentialProperties)
	case "Microsoft.Authorization/roleAssignments 2022-04-01":
		return new(armauthorization.RoleAssignmentProperties)
	case "Microsoft.ManagedIdentity/userAssignedIdentities 2024-11-30":
		return &struct{}{}
	default:
		return nil
	}
}

func readTemplate(t *testing.T) (all template, text string) {
	t.Helper()
	file, err := os.ReadFile("account.json")
	must(t, err)
	d := json.NewDecoder(bytes.NewReader(file))
	d.DisallowUnknownFields()
	must(t, d.Decode(&all))
	return all, string(file)
}

// TestAccount compares the properties of each resource with the types of the SDK: what these lack, or have as another type, does
// not survive. The schema of templates can't be had offline, and expressions are only looked at for what they name.
func TestAccount(t *testing.T) {
	all, text := readTemplate(t)
	for _, r := range all.Resources {
		properties := r.properties()
		if properties == nil {
			t.Errorf("%s of %s is not known", r.Type, r.APIVersion)
			continue
		}
		given := r.Properties
		if given == nil {
			given = []byte("{}")
		}
		if err := json.Unmarshal(given, properties); err != nil {
			t.Errorf("%s: %v", r.Type, err)
			continue
		}
		kept, err := json.Marshal(properties)
		must(t, err)
		var was, is any
		must(t, json.Unmarshal(given, &was))
		must(t, json.Unmarshal(kept, &is))
		if !reflect.DeepEqual(was, is) {
			t.Errorf("%s: the SDK makes\n%s\nof\n%s", r.Type, kept, given)
		}
	}
	declared := map[string]bool{}
	for name := range all.Parameters {
		declared["parameters('"+name+"')"] = false
	}
	for name := range all.Variables {
		declared["variables('"+name+"')"] = false
	}
	for _, used := range regexp.MustCompile(`(parameters|variables)\('\w+'\)`).FindAllString(text, -1) {
		if _, known := declared[used]; !known {
			t.Errorf("%s is not declared", used)
		}
		declared[used] = true
	}
	for name, used := range declared {
		if !used {
			t.Errorf("%s is not used", name)
		}
	}
	for _, expression := range regexp.MustCompile(`"\[.*?\]"`).FindAllString(text, -1) {
		if strings.Count(expression, "(") != strings.Count(expression, ")") || strings.Count(expression, "'")%2 != 0 {
			t.Errorf("%s does not close", expression)
		}
	}
}

// TestAccountIsClosed looks at what docs/account.md asks for: no keys, no strangers, and what was deleted comes back.
func TestAccountIsClosed(t *testing.T) {
	all, _ := readTemplate(t)
	var account armstorage.AccountPropertiesCreateParameters
	var blobs armstorage.BlobServicePropertiesProperties
	for _, r := range all.Resources {
		switch v := r.properties().(type) {
		case *armstorage.AccountPropertiesCreateParameters:
			must(t, json.Unmarshal(r.Properties, v))
			account = *v
		case *armstorage.BlobServicePropertiesProperties:
			must(t, json.Unmarshal(r.Properties, v))
			blobs = *v
		}
	}
	for what, ok := range map[string]bool{
		"an identity":       !*account.AllowSharedKeyAccess && !*account.AllowBlobPublicAccess,
		"TLS":               *account.EnableHTTPSTrafficOnly && *account.MinimumTLSVersion == armstorage.MinimumTLSVersionTLS12,
		"its subnet":        *account.NetworkRuleSet.DefaultAction == armstorage.DefaultActionDeny && len(account.NetworkRuleSet.VirtualNetworkRules) == 1,
		"no one else":       *account.NetworkRuleSet.Bypass == armstorage.BypassNone && *account.PublicNetworkAccess == armstorage.PublicNetworkAccessEnabled,
		"a flat account":    !*account.IsHnsEnabled && slices.Contains(armstorage.PossibleAccessTierValues(), *account.AccessTier),
		"no versions":       !*blobs.IsVersioningEnabled,
		"soft delete":       *blobs.DeleteRetentionPolicy.Enabled && *blobs.ContainerDeleteRetentionPolicy.Enabled,
		"a short retention": *blobs.DeleteRetentionPolicy.Days == 1 && *blobs.ContainerDeleteRetentionPolicy.Days >= 7,
	} {
		if !ok {
			t.Errorf("the account lacks %s", what)
		}
	}
	writers, readers := all.Parameters["writers"].DefaultValue, all.Parameters["readers"].DefaultValue
	if !reflect.DeepEqual(writers, []any{"engine"}) || !reflect.DeepEqual(readers, []any{"web", "mirror"}) {
		t.Errorf("%v write, and %v read", writers, readers)
	}
	m := read(t)
	for name := range m.pods() {
		if as := m.pods()[name].Spec.ServiceAccountName; !slices.Contains(append(writers.([]any), readers.([]any)...), any(as)) {
			t.Errorf("%s has no identity %s", name, as)
		}
	}
	if m.kustomization.Namespace != all.Parameters["namespace"].DefaultValue {
		t.Errorf("the manifests are for namespace %s", m.kustomization.Namespace)
	}
}
