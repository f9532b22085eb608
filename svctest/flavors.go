package svctest

import "time"

// Flavor is a GPU offering with its stock.
type Flavor struct {
	ID                             string // flavor_id
	DisplayName                    string
	ClusterID, ClusterFlavorID     string
	CUDA                           string  // a version, such as "12.4"
	Region                         string  // "cn" or "other"
	CNYPrice, USDPrice, TokenPrice float64 // per unit of use
	// Stock is how many instances there are. Endpoints take from it by their
	// target_instance_number; available_num is what is left.
	Stock int
	// MaxGPU is node_max_gpu, the most that an instance may ask for; zero sets no limit.
	MaxGPU int
	// VRAM and ImageSize show up in the endpoints of this flavor. Defaults "24GB" and "10GB".
	VRAM, ImageSize      string
	CreatedAt, UpdatedAt time.Time // default 2024-06-01 10:11:12 UTC
	DeletedAt            time.Time // zero while it is on offer
}

// defaultFlavors are on offer unless [WithFlavors] says otherwise: two with
// stock, one sold out.
func defaultFlavors() []Flavor {
	return []Flavor{
		{ID: "flavor-1", DisplayName: "GPU A", ClusterID: "cluster-1", ClusterFlavorID: "cf-1",
			CUDA: "12.4", Region: "other", CNYPrice: 7.5, USDPrice: 1.05, Stock: 8, MaxGPU: 8, VRAM: "24GB"},
		{ID: "flavor-2", DisplayName: "GPU B", ClusterID: "cluster-2", ClusterFlavorID: "cf-2",
			CUDA: "11.8", Region: "cn", CNYPrice: 3, USDPrice: 0.42, TokenPrice: 0.001, Stock: 4, MaxGPU: 4, VRAM: "16GB"},
		{ID: "flavor-3", DisplayName: "GPU C", ClusterID: "cluster-1", ClusterFlavorID: "cf-3",
			CUDA: "12.4", Region: "other", CNYPrice: 21, USDPrice: 2.95, MaxGPU: 8, VRAM: "80GB"},
	}
}

type flavorRecord struct {
	FlavorID        string        `json:"flavor_id"`
	DisplayName     string        `json:"display_name"`
	ClusterID       string        `json:"cluster_id"`
	ClusterFlavorID string        `json:"cluster_flavor_id"`
	MetaInfo        flavorMeta    `json:"meta_info"`
	Billing         flavorBilling `json:"billing"`
	CreatedAt       string        `json:"created_at"`
	UpdatedAt       string        `json:"updated_at"`
	DeletedAt       *string       `json:"deleted_at"`
	IsDeleted       bool          `json:"is_deleted"`
	AvailableNum    int           `json:"available_num"`
	NodeMaxGPU      int           `json:"node_max_gpu"`
}

type flavorMeta struct {
	CUDA   string `json:"cuda"`
	Region string `json:"region"`
}

type flavorBilling struct {
	CNYPriceUnit   float64 `json:"cny_price_unit"`
	USDPriceUnit   float64 `json:"usd_price_unit"`
	TokenPriceUnit float64 `json:"token_price_unit"`
}

func (s *Server) listFlavors(c *call) response {
	list := make([]flavorRecord, 0, len(s.cfg.flavors))
	for i := range s.cfg.flavors {
		f := &s.cfg.flavors[i]
		list = append(list, flavorRecord{
			FlavorID: f.ID, DisplayName: f.DisplayName, ClusterID: f.ClusterID, ClusterFlavorID: f.ClusterFlavorID,
			MetaInfo:  flavorMeta{f.CUDA, f.Region},
			Billing:   flavorBilling{f.CNYPrice, f.USDPrice, f.TokenPrice},
			CreatedAt: formatTime(orSeeded(f.CreatedAt), spacedTime), UpdatedAt: formatTime(orSeeded(f.UpdatedAt), spacedTime),
			DeletedAt: nullableTime(f.DeletedAt), IsDeleted: !f.DeletedAt.IsZero(),
			AvailableNum: max(s.available(f, c.now), 0), NodeMaxGPU: f.MaxGPU,
		})
	}
	return response{value: map[string]any{"flavor_list": list}}
}

func orSeeded(t time.Time) time.Time {
	if t.IsZero() {
		return time.Date(2024, 6, 1, 10, 11, 12, 0, time.UTC)
	}
	return t
}

// flavor finds one that is on offer.
func (s *Server) flavor(id string) *Flavor {
	for i := range s.cfg.flavors {
		if f := &s.cfg.flavors[i]; f.ID == id && f.DeletedAt.IsZero() {
			return f
		}
	}
	return nil
}

// available is the stock of f that no endpoint has taken.
func (s *Server) available(f *Flavor, now time.Time) int {
	n := f.Stock
	for _, e := range s.alive(now) {
		if e.flavorID == f.ID {
			n -= e.target
		}
	}
	return n
}
