package svc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

func TestFlavors_List(t *testing.T) {
	s := testkit.Play(t, testkit.Reply{Status: 200, Body: `{"flavor_list":[{"flavor_id":"f-1","display_name":"GPU A","cluster_id":"c-1","cluster_flavor_id":"cf-1",
		"meta_info":{"cuda":"12.4","region":"cn"},"billing":{"cny_price_unit":7.5,"usd_price_unit":"1.05","token_price_unit":0},
		"created_at":"2024-05-01 10:20:30","updated_at":"2024-05-02 10:20:30","deleted_at":null,"is_deleted":false,
		"available_num":3,"node_max_gpu":8},{"flavor_id":"f-0","is_deleted":true,"deleted_at":"2024-05-03 00:00:00","meta_info":{"region":"mars"}}]}`})
	flavors, err := s.Client().Flavors.List(t.Context(), svc.WithQuery("q", "1"))
	require.NoError(t, err)
	require.Equal(t, "GET /v1/inference-service/flavor?q=1", s.Seen()[0].Method+" "+s.Seen()[0].Path)
	require.Empty(t, s.Seen()[0].Body)
	require.NotContains(t, s.Seen()[0].Header, "Content-Type")
	require.Len(t, flavors, 2)
	f := flavors[0]
	require.Equal(t, "f-1 GPU A c-1 cf-1 12.4", strings.Join([]string{f.FlavorID, f.DisplayName, f.ClusterID, f.ClusterFlavorID, f.MetaInfo.CUDA}, " "))
	require.Equal(t, svc.RegionCN, f.MetaInfo.Region)
	require.EqualValues(t, 3, f.AvailableNum)
	require.EqualValues(t, 8, f.NodeMaxGPU)
	require.Equal(t, "7.5 1.05 0", fmt.Sprint(f.Billing.Price(svc.CurrencyCNY), f.Billing.Price(svc.CurrencyUSD), f.Billing.Price(svc.CurrencyToken)))
	require.True(t, f.Billing.Price("eur").IsZero())
	require.Equal(t, "2024-05-01 10:20:30 +0000 UTC", f.CreatedAt.Time.String())
	require.Equal(t, 2, f.UpdatedAt.Day())
	require.True(t, f.DeletedAt.IsZero())
	require.True(t, flavors[1].IsDeleted)
	require.Equal(t, 3, flavors[1].DeletedAt.Day())
	require.Equal(t, svc.Region("mars"), flavors[1].MetaInfo.Region, "the list keeps the service's order and deleted flavors")
}

// stock is the list of flavors that Find selects from. Columns: name, region, CUDA,
// available, GPUs per node, USD, CNY, token.
var stock = [][8]string{
	{"GPU A 80G", "cn", "12.4", "3", "8", "2.5", "1", "null"},
	{"GPU A 80G", "other", "12.10", "0", "8", "2.50", "9", "null"},
	{"gpu b", "other", "11.8", "1", "4", "10", "8", "null"},
	{"GPU C", "cn", "12.4.1", "9", "1", "null", "7", "5"},
	{"GPU D", "other", "", "9", "2", "0", "null", "4"},
	{"GPU E", "other", "13", "2", "16", "9e-1", "", "3"},
	{"GPU F", "CN", "v12.0", "2", "16", "\"\"", "6", "2"},
	{"GPU G", "other", "beta", "5", "8", "0.10", "5", "1"},
}

func stockJSON() string {
	var list []string
	for i, f := range stock {
		for j := 5; j < 8; j++ {
			if f[j] == "" {
				f[j] = "null"
			}
		}
		list = append(list, fmt.Sprintf(`{"flavor_id":"%d","display_name":%q,"meta_info":{"region":%q,"cuda":%q},"available_num":%s,"node_max_gpu":%s,"billing":{"usd_price_unit":%s,"cny_price_unit":%s,"token_price_unit":%s}}`,
			i, f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]))
	}
	list = append(list, `{"flavor_id":"gone","display_name":"GPU A","is_deleted":true,"meta_info":{"region":"cn","cuda":"99"},"available_num":9,"node_max_gpu":99,"billing":{"usd_price_unit":0.01}}`)
	return `{"flavor_list":[` + strings.Join(list, ",") + `]}`
}

func price(text string) (p svc.Price) {
	_ = p.UnmarshalJSON([]byte(text))
	return p
}

func TestFlavors_Find(t *testing.T) {
	for name, tt := range map[string]struct {
		q    svc.FlavorQuery
		want string // the indexes in stock of the flavors found, in order
	}{
		"everything, cheapest first": {svc.FlavorQuery{}, "47501236"}, // flavors without a price, or with the same price, keep the service's order
		"in yuan":                    {svc.FlavorQuery{Currency: svc.CurrencyCNY}, "07632145"},
		"in tokens":                  {svc.FlavorQuery{Currency: svc.CurrencyToken}, "76543012"},
		"in dollars":                 {svc.FlavorQuery{Currency: svc.CurrencyUSD}, "47501236"},
		"name":                       {svc.FlavorQuery{Name: "gpu A"}, "01"},
		"name, other case":           {svc.FlavorQuery{Name: "GPU B"}, "2"},
		"part of the name":           {svc.FlavorQuery{Name: "80g"}, "01"},
		"no such name":               {svc.FlavorQuery{Name: "TPU"}, ""},
		"region":                     {svc.FlavorQuery{Region: svc.RegionCN}, "03"},
		"unknown region":             {svc.FlavorQuery{Region: "mars"}, ""},
		"CUDA":                       {svc.FlavorQuery{MinCUDA: "12.4"}, "5013"},
		"CUDA, by number":            {svc.FlavorQuery{MinCUDA: "12.5"}, "51"},
		"CUDA, two digits":           {svc.FlavorQuery{MinCUDA: "12.10"}, "51"},
		"CUDA, three parts":          {svc.FlavorQuery{MinCUDA: "12.4.1"}, "513"},
		"CUDA, main version":         {svc.FlavorQuery{MinCUDA: "12"}, "50136"},
		"CUDA, trailing zeros":       {svc.FlavorQuery{MinCUDA: "12.0.0"}, "50136"},
		"CUDA, with a v":             {svc.FlavorQuery{MinCUDA: "v13.0"}, "5"},
		"stock":                      {svc.FlavorQuery{MinAvailable: 1}, "4750236"},
		"much stock":                 {svc.FlavorQuery{MinAvailable: 9}, "43"},
		"GPUs":                       {svc.FlavorQuery{MinGPUsPerNode: 8}, "75016"},
		"price":                      {svc.FlavorQuery{MaxPrice: price("2.50")}, "47501"}, // 2.5 and 2.50 are equal; flavors without a price in dollars do not match
		"price in yuan":              {svc.FlavorQuery{MaxPrice: price("6"), Currency: svc.CurrencyCNY}, "076"},
		"nothing to pay":             {svc.FlavorQuery{MaxPrice: price("0")}, "4"},
		"no such price":              {svc.FlavorQuery{MaxPrice: price("0.5"), Currency: svc.CurrencyToken}, ""},
		"all at once":                {svc.FlavorQuery{Name: "gpu", Region: svc.RegionOther, MinCUDA: "11", MinAvailable: 1, MinGPUsPerNode: 4, Currency: svc.CurrencyCNY}, "25"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.Play(t, testkit.Reply{Status: 200, Body: stockJSON()})
			flavors, err := s.Client().Flavors.Find(t.Context(), tt.q)
			require.NoError(t, err)
			got := ""
			for _, f := range flavors {
				got += f.FlavorID
			}
			require.Equal(t, tt.want, got)
			require.Equal(t, "/v1/inference-service/flavor", s.Seen()[0].Path)
		})
	}
}

func TestFlavors_FindRefusesNonsense(t *testing.T) {
	for field, q := range map[string]svc.FlavorQuery{
		"MinCUDA":        {MinCUDA: "latest"},
		"MinCUDA ":       {MinCUDA: "12."},
		"MinCUDA  ":      {MinCUDA: "12.-4"},
		"MinAvailable":   {MinAvailable: -1},
		"MinGPUsPerNode": {MinGPUsPerNode: -1},
		"MaxPrice":       {MaxPrice: price("-0.1")},
		"MaxPrice ":      {MaxPrice: price(`"cheap"`)},
		"Currency":       {Currency: "eur"},
	} {
		_, err := testkit.Play(t).Client().Flavors.Find(t.Context(), q)
		e := testkit.ErrorAs[*svc.ValidationError](t, err)
		require.Len(t, e.Fields, 1)
		require.Equal(t, strings.TrimSpace(field), e.Fields[0].Field)
	}
	_, err := testkit.Play(t).Client().Flavors.Find(t.Context(), svc.FlavorQuery{MinCUDA: "x", MinAvailable: -1, MinGPUsPerNode: -1, Currency: "x"})
	require.Len(t, testkit.ErrorAs[*svc.ValidationError](t, err).Fields, 4, "the error names all invalid fields")
	_, err = testkit.Play(t, testkit.Status(403)).Client().Flavors.Find(t.Context(), svc.FlavorQuery{})
	require.ErrorIs(t, err, svc.ErrForbidden)
}
