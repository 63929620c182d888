"""What sm_90a and sm_100a share: roles that are programs of their own, pipelines, PTX, ptxas."""
