package svctest

import "time"

// Flavor is a GPU offering with its stock, for [WithFlavors]. All fields except ID
// are optional.
type Flavor struct {
	// ID is the flavor_id; required.
	ID string
	// DisplayName is the name of the GPU type.
	DisplayName string
	// ClusterID and ClusterFlavorID are sent unchanged.
	ClusterID, ClusterFlavorID string
	// CUDA is the CUDA version, such as "12.4".
	CUDA string
	// Region is "cn" or "other".
	Region string
	// CNYPrice, USDPrice and TokenPrice are the prices of one unit of use.
	CNYPrice, USDPrice, TokenPrice float64
	// Stock is the number of instances that exist. Every endpoint takes its
	// target_instance_number from the stock. The rest is sent as available_num. Zero
	// means sold out.
	Stock int
	// MaxGPU is node_max_gpu, the largest number of GPUs of an instance. Zero means
	// no limit.
	MaxGPU int
	// VRAM and ImageSize are sent in the records of endpoints with this flavor. The
	// defaults are "24GB" and "10GB".
	VRAM, ImageSize string
	// CreatedAt and UpdatedAt default to 2024-06-01 10:11:12 UTC.
	CreatedAt, UpdatedAt time.Time
	// DeletedAt is the time at which the flavor was deleted. Zero means that it is not
	// deleted. A deleted flavor stays in the list, but no endpoint can be created with it.
	DeletedAt time.Time
}

// defaultFlavors returns the flavors of a server without [WithFlavors]: two with stock,
// one sold out.
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

// flavor returns the flavor with this ID, or nil if there is none or it is deleted.
func (s *Server) flavor(id string) *Flavor {
	for i := range s.cfg.flavors {
		if f := &s.cfg.flavors[i]; f.ID == id && f.DeletedAt.IsZero() {
			return f
		}
	}
	return nil
}

// available returns the number of instances of f that are still free. It is negative if
// a test added endpoints with more instances than there are in stock.
func (s *Server) available(f *Flavor, now time.Time) int {
	n := f.Stock
	for _, e := range s.alive(now) {
		if e.flavorID == f.ID {
			n -= e.target
		}
	}
	return n
}
