package bench_test

// plainService, plainFlavors and plainJob are the types that a caller without this library would
// write, for the fields whose contents are documented.
type plainService struct {
	ServiceID        string  `json:"service_id"`
	Name             string  `json:"name"`
	Description      string  `json:"description"`
	UserID           string  `json:"user_id"`
	Status           string  `json:"status"`
	StatusInfo       *string `json:"status_info"`
	ResourceMetadata struct {
		ResourceDisplayName  string `json:"resource_display_name"`
		ScaleType            string `json:"scale_type"`
		FlavorID             string `json:"flavor_id"`
		TargetInstanceNumber int    `json:"target_instance_number"`
		VRAM                 string `json:"VRAM"`
		ImageSize            string `json:"image_size"`
	} `json:"resource_metadata"`
	DeployMetadata struct {
		ImageURL string `json:"image_url"`
		Command  string `json:"command"`
		Port     int    `json:"port"`
		GPUNum   int    `json:"gpu_num"`
	} `json:"deploy_metadata"`
	ServiceType string  `json:"service_type"`
	CreatedAt   string  `json:"created_at"`
	UpdatedAt   string  `json:"updated_at"`
	DeletedAt   *string `json:"deleted_at"`
	IsDeleted   bool    `json:"is_deleted"`
	PaymentType string  `json:"payment_type"`
}

type plainFlavors struct {
	Flavors []plainFlavor `json:"flavor_list"`
}

type plainFlavor struct {
	FlavorID        string `json:"flavor_id"`
	DisplayName     string `json:"display_name"`
	ClusterID       string `json:"cluster_id"`
	ClusterFlavorID string `json:"cluster_flavor_id"`
	MetaInfo        struct {
		CUDA   string `json:"cuda"`
		Region string `json:"region"`
	} `json:"meta_info"`
	Billing struct {
		CNYPriceUnit   float64 `json:"cny_price_unit"`
		USDPriceUnit   float64 `json:"usd_price_unit"`
		TokenPriceUnit float64 `json:"token_price_unit"`
	} `json:"billing"`
	CreatedAt    string  `json:"created_at"`
	UpdatedAt    string  `json:"updated_at"`
	DeletedAt    *string `json:"deleted_at"`
	IsDeleted    bool    `json:"is_deleted"`
	AvailableNum int     `json:"available_num"`
	NodeMaxGPU   int     `json:"node_max_gpu"`
}

type plainJob struct {
	JobID       string `json:"job_id"`
	UserID      string `json:"user_id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	PaymentType string `json:"payment_type"`
	Status      string `json:"status"`
	MetaInfo    struct {
		OriginalRequest struct {
			JobType string `json:"job_type"`
			Config  struct {
				Prompt   string `json:"prompt"`
				Settings struct {
					Seed        int    `json:"seed"`
					AspectRatio string `json:"aspect_ratio"`
					Resolution  int    `json:"resolution"`
					Duration    int    `json:"duration"`
				} `json:"settings"`
				GenMode  string `json:"gen_mode"`
				IsPublic bool   `json:"is_public"`
			} `json:"config"`
		} `json:"original_request"`
		ModelID         int    `json:"model_id"`
		OrderID         string `json:"order_id"`
		UpdateAt        string `json:"update_at"`
		ServiceAPIToken struct {
			APIToken   string `json:"api_token"`
			APITokenID int    `json:"api_token_id"`
			User       struct {
				UserID   string `json:"user_id"`
				Nickname string `json:"nickname"`
				Currency string `json:"currency"`
			} `json:"user"`
		} `json:"service_api_token"`
	} `json:"meta_info"`
	CreatedAt string `json:"created_at"`
	UpdatedAt string `json:"updated_at"`
	DeletedAt string `json:"deleted_at"`
	IsDeleted bool   `json:"is_deleted"`
	Outputs   []struct {
		ID           string `json:"id"`
		MediaURL     string `json:"media_url"`
		ThumbnailURL string `json:"thumbnail_url"`
	} `json:"outputs"`
}

type plainJobs struct {
	TotalCount int        `json:"total_count"`
	Jobs       []plainJob `json:"job_list"`
}
